"""Parse, call the library, and end in a way that a shell understands."""

import io
import os
import sys
from collections.abc import Sequence

from bosch.cli import analyze, bench, compare, eval, export, generate, methods, models, search, train
from bosch.cli.parser import Parser
from bosch.errors import BoschError, in_words
from bosch.version import __version__

COMMANDS = (
    search.COMMAND,
    compare.COMMAND,
    analyze.COMMAND,
    export.COMMAND,
    generate.COMMAND,
    train.COMMAND,
    eval.COMMAND,
    bench.COMMAND,
    methods.COMMAND,
    models.COMMAND,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 well, 2 a user's mistake, 130 Ctrl-C, 141 reader gone."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files may hold what the terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = _make_parser().parse_args(sys.argv[1:] if argv is None else argv)
        with in_words():
            arguments.run(arguments)
        sys.stdout.flush()  # a reader that is gone shows here, and not in the interpreter's last words
    except BoschError as error:
        print(f"bosch: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bosch: stopped; the same command, run again, resumes", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def _make_parser() -> Parser:
    parser = Parser(
        prog="bosch",
        description="Choose, head by head, which attention heads of a pretrained LLM can live with a sliding window.",
        examples=["bosch models"],
    )
    parser.add_argument("--version", action="version", version=f"bosch {__version__}")
    parser.set_defaults(run=lambda _: parser.print_help())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.name, help=command.help, description=command.help, examples=command.examples
        )
        subparser.set_defaults(run=command.run)
        command.add_arguments(subparser)
    return parser
