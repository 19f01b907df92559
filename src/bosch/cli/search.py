"""`bosch search`: from a model and a ratio to a mask."""

import argparse

from bosch.cli.command import Command
from bosch.cli.options import add_settings, given_settings
from bosch.search.settings import SearchSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of the settings."""
    add_settings(parser, SearchSettings)


def run(arguments: argparse.Namespace) -> None:
    """Search, then show the table and where everything is."""
    settings = given_settings(arguments, SearchSettings)
    from bosch.files import read_json
    from bosch.search.report.run_report import score_table
    from bosch.search.run import search

    directory = search(settings, arguments.output, overwrite=arguments.overwrite)
    print("\n".join(score_table(read_json(directory.scores)["rows"])))
    print(f"mask: {directory.mask}\nreport: {directory.report}")


COMMAND = Command(
    name="search",
    help="Find which KV heads of a model can slide, at a target ratio.",
    example="bosch search --model smollm2-135m --ratio 0.5 --window 64 --output runs/demo",
    add_arguments=add_arguments,
    run=run,
)
