"""`bosch compare`: every method at every ratio."""

import argparse

from bosch.cli.parser import Command, add_settings, given
from bosch.experiments.settings import GROUPS, CompareSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of the settings."""
    add_settings(parser, CompareSettings, "model", "methods", "ratios", "window", groups=GROUPS)


def run(arguments: argparse.Namespace) -> None:
    """Compare, then show the tables and where everything is."""
    from bosch.api import compare

    found = compare(**given(arguments, CompareSettings))
    assert found.directory
    print(f"{found.table()}\nmasks: {found.directory.masks}\nreport: {found.directory.report}")


COMMAND = Command(
    name="compare",
    help="Compare methods of choosing heads, at several ratios.",
    examples=(
        "bosch compare --model smollm2-135m --window 64 --ratios 0.5,0.75 --methods progressive,razor,intr "
        "--output runs/compare",
        "bosch compare --model Qwen/Qwen3-1.7B-Base --window 1024 --lengths 8192 --output runs/all-methods",
    ),
    add_arguments=add_arguments,
    run=run,
)
