"""`bosch export`: from a search's directory to a checkpoint that loads everywhere."""

import argparse

from bosch.cli.parser import Command
from bosch.common.files import to_path
from bosch.common.options import MODEL, TRUST_HELP, YARN_HELP
from bosch.errors import BoschError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, or a model and a mask; and where the checkpoint goes."""
    parser.add_argument("run_directory", metavar="RUN", type=to_path, nargs="?", help="the directory of a search")
    parser.add_argument("--model", metavar=MODEL, help="in place of RUN: a known name, a directory, or a hub id")
    parser.add_argument("--mask", metavar="FILE", type=to_path, help="in place of RUN: the mask to put on the model")
    parser.add_argument("--output", type=to_path, required=True, metavar="DIR", help="the directory to make")
    parser.add_argument("--overwrite", action="store_true", help="replace an exported model in that directory")
    parser.add_argument(
        "--max-shard-size", default="5GB", metavar="SIZE", help="of one weights file, such as 500MB (default: 5GB)"
    )
    parser.add_argument("--yarn", type=float, metavar="FLOAT", help=YARN_HELP)
    parser.add_argument("--trust-remote-code", action="store_true", help=TRUST_HELP)


def run(arguments: argparse.Namespace) -> None:
    """Export, and say what was written."""
    by_name = arguments.model is not None and arguments.mask is not None
    if (arguments.run_directory is not None) == by_name or (arguments.model is None) != (arguments.mask is None):
        raise BoschError("expected the directory of a search, or both --model and --mask")
    from bosch.deploy.export import export
    from bosch.deploy.recipe import read_mask, read_run

    recipe = read_mask(arguments.model, arguments.mask) if by_name else read_run(arguments.run_directory)
    export(
        recipe,
        arguments.output,
        overwrite=arguments.overwrite,
        max_shard_size=arguments.max_shard_size,
        yarn=arguments.yarn,
        trust_remote_code=arguments.trust_remote_code,
    )
    print(f"{recipe.model} with {recipe.mask} is in {arguments.output}")


COMMAND = Command(
    name="export",
    help="Write a hybrid as a checkpoint directory, with the code that runs it.",
    examples=(
        "bosch export runs/demo --output smollm2-hybrid",
        "bosch export --model smollm2-135m --mask runs/demo/masks/0023.json --output smollm2-quarter",
    ),
    add_arguments=add_arguments,
    run=run,
)
