"""What a subcommand is."""

import argparse
import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Command:
    """One subcommand, in a file of its own. `run` does the heavy imports, so that `--help` stays quick.

    Args:
        name: what the user types after `bosch`.
        help: one line that says what it does.
        example: a line to try, shown at the end of `--help`.
        add_arguments: declares the options.
        run: does the work; a `BoschError` becomes one line and exit status 2.
    """

    name: str
    help: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
