"""`bosch methods`: what there is to choose heads by."""

import argparse
import inspect

from bosch.cli.command import Command


def add_arguments(_: argparse.ArgumentParser) -> None:
    """None."""


def run(_: argparse.Namespace) -> None:
    """One line a method: its name, and the first sentence of what it is."""
    from bosch.selectors import SELECTORS

    for name, selector in SELECTORS.items():
        print(f"{name}: {_about(selector)}")


def _about(selector: object) -> str:
    """The first sentence of the file that defines a method."""
    measure = getattr(selector, "measure", selector)
    module = inspect.getmodule(getattr(measure, "statistic", measure))
    assert module
    assert module.__doc__
    return " ".join(module.__doc__.split("\n\n")[0].split())


COMMAND = Command(
    name="methods",
    help="List the methods of choosing heads.",
    example="bosch methods",
    add_arguments=add_arguments,
    run=run,
)
