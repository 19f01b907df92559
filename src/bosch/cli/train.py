"""`bosch train`: continual pretraining of a hybrid."""

import argparse
from pathlib import Path

from bosch.cli.command import Command
from bosch.cli.options import add_settings, given_settings
from bosch.training.settings import PretrainSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The hybrid, and one option for each field of the settings."""
    parser.add_argument(
        "target", metavar="RUN_OR_EXPORT", type=Path, help="the directory of a search, or of an exported hybrid"
    )
    add_settings(parser, PretrainSettings)


def run(arguments: argparse.Namespace) -> None:
    """Train, then say where the last checkpoint is."""
    settings = given_settings(arguments, PretrainSettings)
    from accelerate import PartialState

    from bosch.training.pretraining import pretrain

    checkpoint = pretrain(arguments.target, settings, arguments.output, overwrite=arguments.overwrite)
    if PartialState().is_main_process:
        print(f"log: {arguments.output / 'log.jsonl'}\ncheckpoint: {checkpoint}")


COMMAND = Command(
    name="train",
    help="Train a hybrid further, to recover what it lost.",
    example="bosch train runs/demo --data books,needles --tokens 400000 --tokens-per-step 8192 --sequence-length 512 "
    "--eval-every 100000 --output runs/trained",
    add_arguments=add_arguments,
    run=run,
)
