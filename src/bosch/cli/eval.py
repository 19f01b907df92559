"""`bosch eval`: how good hybrids are on the benchmarks of the paper, beside the original."""

import argparse

from bosch.cli.command import Command
from bosch.cli.options import add_settings, given_settings
from bosch.evaluation.settings import EvalSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to evaluate, and one option for each field of the settings."""
    help_text = "the directory of a search or of an export, or any model; several are shown beside each other"
    parser.add_argument("targets", metavar="TARGET", nargs="+", help=help_text)
    add_settings(parser, EvalSettings)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate, then show the tables and where everything is."""
    arguments.targets = tuple(arguments.targets)
    settings = given_settings(arguments, EvalSettings)
    from bosch.evaluation.report import evaluated
    from bosch.evaluation.rows import Rows
    from bosch.evaluation.run import evaluate

    directory = evaluate(settings, arguments.output, overwrite=arguments.overwrite)
    print("\n".join(evaluated(Rows.load(directory.rows))))
    print(f"rows: {directory.csv}\nreport: {directory.report}")


COMMAND = Command(
    name="eval",
    help="Evaluate hybrids and their originals: needles, LongBench, GSM8K, perplexity, and any task of lm-eval.",
    example="bosch eval smollm2-135m runs/demo --tasks niah --lengths 512,1024 --examples 10 --output runs/eval",
    add_arguments=add_arguments,
    run=run,
)
