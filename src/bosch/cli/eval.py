"""`bosch eval`: how good hybrids are on the benchmarks of the paper, beside the original."""

import argparse

from bosch.cli.parser import Command, add_settings, given
from bosch.evaluation.settings import EvalSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to evaluate, and one option for each field of the settings."""
    help_text = "the directory of a search or of an export, or any model; several are shown beside each other"
    parser.add_argument("targets", metavar="RUN|EXPORT|MODEL", nargs="+", help=help_text)
    add_settings(parser, EvalSettings, "tasks")


def run(arguments: argparse.Namespace) -> None:
    """Evaluate, then show the tables and where everything is."""
    from bosch.api import evaluate

    options = given(arguments, EvalSettings)
    found = evaluate(options.pop("targets"), **options)
    assert found.directory
    print(f"{found.table()}\nrows: {found.directory.csv}\nreport: {found.directory.report}")


COMMAND = Command(
    name="eval",
    help="Evaluate hybrids and their originals: needles, LongBench, GSM8K, perplexity, and any task of lm-eval.",
    examples=(
        "bosch eval smollm2-135m runs/demo --tasks niah --lengths 512,1024 --examples 10 --output runs/eval",
        "bosch eval smollm2-135m runs/demo --tasks perplexity --text book.txt --lengths 2048 --output runs/perplexity",
    ),
    add_arguments=add_arguments,
    run=run,
)
