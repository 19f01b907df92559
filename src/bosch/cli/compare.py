"""`bosch compare`: every method at every ratio."""

import argparse

from bosch.cli.command import Command
from bosch.cli.options import add_settings, given_settings
from bosch.compare.settings import CompareSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of the settings."""
    add_settings(parser, CompareSettings)


def run(arguments: argparse.Namespace) -> None:
    """Compare, then show the tables and where everything is."""
    settings = given_settings(arguments, CompareSettings)
    from bosch.compare.report import compared
    from bosch.compare.run import compare
    from bosch.files import read_json

    directory = compare(settings, arguments.output, overwrite=arguments.overwrite)
    print("\n".join(compared(read_json(directory.rows)["rows"])))
    print(f"masks: {directory.path_masks}\nreport: {directory.report}")


COMMAND = Command(
    name="compare",
    help="Compare methods of choosing heads, at several ratios.",
    example="bosch compare --model smollm2-135m --window 64 --ratios 0.5,0.75 --methods progressive,razor,intr "
    "--output runs/compare",
    add_arguments=add_arguments,
    run=run,
)
