"""`bosch search`: from a model and a ratio to a mask."""

import argparse

from bosch.cli.parser import Command, add_settings, given
from bosch.experiments.settings import GROUPS, SearchSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of the settings."""
    add_settings(parser, SearchSettings, "model", "ratio", "window", groups=GROUPS)


def run(arguments: argparse.Namespace) -> None:
    """Search, then show the table and where everything is."""
    from bosch.api import search

    found = search(**given(arguments, SearchSettings))
    assert found.directory
    print(f"{found.table()}\nmask: {found.directory.mask}\nreport: {found.directory.report}")


COMMAND = Command(
    name="search",
    help="Find which KV heads of a model can slide, at a target ratio.",
    examples=(
        "bosch search --model smollm2-135m --ratio 0.5 --window 64 --output runs/demo",
        "bosch search --model Qwen/Qwen3-1.7B-Base --kv-budget 2GiB@32k --window 1024 --lengths 8192,32768 "
        "--output runs/qwen3",
    ),
    add_arguments=add_arguments,
    run=run,
)
