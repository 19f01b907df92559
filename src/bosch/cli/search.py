"""`bosch search`: from a model and a ratio to a mask."""

import argparse
import dataclasses
import typing
from pathlib import Path

from bosch.cli.command import Command
from bosch.search.settings import SearchSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of the settings, and where the run goes."""
    kinds = typing.get_type_hints(SearchSettings)
    for field in dataclasses.fields(SearchSettings):
        name, help_text = f"--{field.name.replace('_', '-')}", field.metadata["help"]
        if kinds[field.name] is bool:
            parser.add_argument(name, action="store_true", default=argparse.SUPPRESS, help=help_text)
            continue
        required = field.default is dataclasses.MISSING
        shown = "" if required or field.default is None else f" (default: {_show(field.default)})"
        parser.add_argument(
            name,
            required=required,
            default=argparse.SUPPRESS,
            type=_parser_of(kinds[field.name]),
            metavar=field.name.upper(),
            help=help_text + shown,
        )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the run's directory")
    parser.add_argument("--overwrite", action="store_true", help="replace another run in that directory")


def run(arguments: argparse.Namespace) -> None:
    """Search, then show the table and where everything is."""
    given = {field.name for field in dataclasses.fields(SearchSettings)} & vars(arguments).keys()
    settings = SearchSettings(**{name: getattr(arguments, name) for name in given})
    from bosch.files import read_json
    from bosch.search.report.run_report import score_table
    from bosch.search.run import search

    directory = search(settings, arguments.output, overwrite=arguments.overwrite)
    print("\n".join(score_table(read_json(directory.scores)["rows"])))
    print(f"mask: {directory.mask}\nreport: {directory.report}")


def _parser_of(kind: type) -> typing.Callable[[str], object]:
    inner = next((part for part in typing.get_args(kind) if part is not type(None) and part is not Ellipsis), kind)
    if typing.get_origin(kind) is not tuple:
        return inner

    def split(text: str) -> tuple[object, ...]:
        return tuple(inner(part) for part in text.split(",") if part)

    split.__name__ = f"comma-separated {inner.__name__}"
    return split


def _show(default: object) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


COMMAND = Command(
    name="search",
    help="Find which KV heads of a model can slide, at a target ratio.",
    example="bosch search --model smollm2-135m --ratio 0.5 --window 64 --output runs/demo",
    add_arguments=add_arguments,
    run=run,
)
