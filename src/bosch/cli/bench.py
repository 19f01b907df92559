"""`bosch bench`: what a hybrid saves."""

import argparse

from bosch.bench.settings import BenchSettings
from bosch.cli.command import Command
from bosch.cli.options import add_settings, given_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of the settings, and another name for a single window."""
    add_settings(parser, BenchSettings)
    parser.add_argument(
        "--window", dest="windows", type=_one_window, default=argparse.SUPPRESS, metavar="WINDOW", help="a single W"
    )


def _one_window(text: str) -> tuple[int, ...]:
    return (int(text),)


_one_window.__name__ = "int"  # as argparse names it in its message


def run(arguments: argparse.Namespace) -> None:
    """Measure, then show the tables and where everything is."""
    settings = given_settings(arguments, BenchSettings)
    from bosch.bench.report import measured
    from bosch.bench.run import bench
    from bosch.files import read_json

    directory = bench(settings, arguments.output, overwrite=arguments.overwrite)
    print("\n".join(measured(read_json(directory.rows)["rows"])))
    print(f"rows: {directory.csv}\nreport: {directory.report}")


COMMAND = Command(
    name="bench",
    help="Measure speed and memory of hybrids beside the original.",
    example="bosch bench --model smollm2-135m --ratios 0.5,0.75 --window 64 --contexts 1024,4096 --output runs/bench",
    add_arguments=add_arguments,
    run=run,
)
