"""`bosch bench`: what a hybrid saves."""

import argparse

from bosch.bench.settings import BenchSettings
from bosch.cli.parser import Command, add_settings, given
from bosch.common.options import make_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of the settings, and another name for a single window."""
    add_settings(parser, BenchSettings, "model", "contexts", "ratios", "mask")
    parser.add_argument(
        "--window", dest="windows", type=_one_window, default=argparse.SUPPRESS, metavar="INT", help="a single W"
    )


def _one_window(text: str) -> tuple[int, ...]:
    return (int(text),)


_one_window.__name__ = "int"  # as argparse names it in its message


def run(arguments: argparse.Namespace) -> None:
    """Measure, then show the tables and where everything is."""
    options = given(arguments, BenchSettings)
    output, overwrite = options.pop("output"), options.pop("overwrite")
    settings = make_settings(BenchSettings, options)
    from bosch.bench.report import measured
    from bosch.bench.run import bench
    from bosch.common.files import read_json

    directory = bench(settings, output, overwrite=overwrite)
    print("\n".join(measured(read_json(directory.rows)["rows"])))
    print(f"rows: {directory.csv}\nreport: {directory.report}")


COMMAND = Command(
    name="bench",
    help="Measure speed and memory of hybrids beside the original.",
    examples=(
        "bosch bench --model smollm2-135m --ratios 0.5,0.75 --window 64 --contexts 1024,4096 --output runs/bench",
        "bosch bench --model smollm2-135m --mask runs/demo --contexts 1024,4096 --output runs/bench-demo",
    ),
    add_arguments=add_arguments,
    run=run,
)
