"""`bosch methods`: what there is to choose heads by."""

import argparse

from bosch.cli.parser import Command


def add_arguments(_: argparse.ArgumentParser) -> None:
    """None."""


def run(_: argparse.Namespace) -> None:
    """One line a method: its name, what it does, its parameters, and the package that brings it, if not this one."""
    from bosch.selectors import all_methods, origin_of

    for name, method in all_methods().items():
        parameters = ", ".join(f"{parameter}={value}" for parameter, value in method.parameters().items())
        origin = "" if (found := origin_of(method)) == "bosch" else f" [{found}]"
        print(f"{name}: {method.summary}{f' ({parameters})' if parameters else ''}{origin}")


COMMAND = Command(
    name="methods",
    help="List the methods of choosing heads.",
    examples=(
        "bosch methods",
        "bosch search --model smollm2-135m --ratio 0.5 --window 64 --method razor --output runs/razor",
    ),
    add_arguments=add_arguments,
    run=run,
)
