"""`bosch train`: continual pretraining of a hybrid."""

import argparse

from bosch.cli.parser import Command, add_settings, given
from bosch.common.files import to_path
from bosch.common.options import make_settings
from bosch.training.settings import PretrainSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The hybrid, and one option for each field of the settings."""
    parser.add_argument(
        "target", metavar="RUN|EXPORT", type=to_path, help="the directory of a search, or of an exported hybrid"
    )
    add_settings(parser, PretrainSettings, "texts", "tokens")


def run(arguments: argparse.Namespace) -> None:
    """Train, then say where the last checkpoint is."""
    options = given(arguments, PretrainSettings)
    output, overwrite = options.pop("output"), options.pop("overwrite")
    settings = make_settings(PretrainSettings, options)
    from accelerate import PartialState

    from bosch.training.pretraining import pretrain

    checkpoint = pretrain(arguments.target, settings, output, overwrite=overwrite)
    if PartialState().is_main_process:
        print(f"log: {output / 'log.jsonl'}\ncheckpoint: {checkpoint}")


COMMAND = Command(
    name="train",
    help="Train a hybrid further, to recover what it lost.",
    examples=(
        "bosch train runs/demo --texts books,needles --tokens 400000 --tokens-per-step 8192 --sequence-length 512 "
        "--eval-every 100000 --output runs/trained",
        "accelerate launch -m bosch train smollm2-hybrid --texts books --tokens 1000000 --tokens-per-step 65536 "
        "--sequence-length 4096 --lora-rank 16 --output runs/adapted",
    ),
    add_arguments=add_arguments,
    run=run,
)
