"""`bosch generate`: text from a hybrid, and what its cache weighs."""

import argparse

from bosch.cli.parser import Command
from bosch.common.files import read_text, to_path
from bosch.common.options import TRUST_HELP
from bosch.errors import BoschError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A model, a prompt, how long to go on, and whether to compare."""
    parser.add_argument(
        "target", metavar="RUN|EXPORT|MODEL", help="the directory of a search or of an export, or any model"
    )
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="the text to go on from")
    prompt.add_argument("--file", metavar="FILE", type=to_path, help="a UTF-8 file with that text")
    parser.add_argument(
        "--max-new-tokens", type=int, default=128, metavar="INT", help="tokens to generate at most (default: 128)"
    )
    parser.add_argument(
        "--compare-full", action="store_true", help="generate with all heads full as well, and show both costs"
    )
    parser.add_argument("--trust-remote-code", action="store_true", help=TRUST_HELP)


def run(arguments: argparse.Namespace) -> None:
    """Text to stdout as it comes; then bytes and speed to stderr."""
    if arguments.max_new_tokens < 1:
        raise BoschError(f"--max-new-tokens must be at least 1, got {arguments.max_new_tokens}")
    prompt = arguments.prompt if arguments.file is None else read_text(arguments.file, "the prompt")
    from bosch.deploy.generation import generate, report
    from bosch.deploy.hybridize import restore_full_attention
    from bosch.deploy.modeling_bosch import BoschMixin
    from bosch.deploy.recipe import open_target, read_target

    model, tokenizer = open_target(read_target(arguments.target), trust_remote_code=arguments.trust_remote_code)
    is_hybrid = isinstance(model, BoschMixin)
    if arguments.compare_full and not is_hybrid:
        raise BoschError(f"{arguments.target} is no hybrid, so there is nothing to compare; leave out --compare-full")
    costs = {"hybrid" if is_hybrid else "model": generate(model, tokenizer, prompt, arguments.max_new_tokens)}
    if isinstance(model, BoschMixin) and arguments.compare_full:
        full = restore_full_attention(model)
        costs["full"] = generate(full, tokenizer, prompt, arguments.max_new_tokens, silent=True)
    report(costs)


COMMAND = Command(
    name="generate",
    help="Generate text with a hybrid; show what its cache weighs and how fast it is.",
    examples=(
        "bosch generate runs/demo --prompt 'Once upon a time' --compare-full",
        "bosch generate smollm2-hybrid --file prompt.txt --max-new-tokens 64",
    ),
    add_arguments=add_arguments,
    run=run,
)
