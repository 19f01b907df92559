"""Try every causal language model of the installed transformers: `python scripts/list_models.py docs/models.md`.

Each class is built from a small config with random weights and taken through everything: search mode, deployed with the
small cache, exported and loaded again, each against dense masks in float32. The table of what came out replaces the one
in the document. With names of model types after the document only these are tried, and nothing is written.
"""

import argparse
import dataclasses
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from bosch.errors import BoschError
from end_to_end import check_family
from small_models import class_name, model_types, small_model

BEGIN, END = "<!-- every family: scripts/list_models.py -->", "<!-- end -->"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one family.

    Args:
        model_type: as its config says.
        kind: its class.
        works: end to end.
        text: eligible layers of how many, or why it does not.
    """

    model_type: str
    kind: str
    works: bool
    text: str


def outcomes(names: Iterable[str]) -> Iterator[Outcome]:
    """Take families through everything, one after the other."""
    for name in names:
        works, text = _outcome(name)
        yield Outcome(name, class_name(name), works, text)


def _outcome(name: str) -> tuple[bool, str]:
    try:
        model = small_model(name)
    except Exception as error:  # whatever a config may raise
        return False, f"not tried: no small model of it could be built ({_line(error)})"
    try:
        with tempfile.TemporaryDirectory() as directory:
            layout = check_family(model, Path(directory)).layout
    except BoschError as error:
        return False, str(error)
    except Exception as error:
        return False, f"WRONG: {_line(error)}"
    if not layout.num_units:
        return False, "taken apart, but no layer has units: each is sliding, linear, latent or attends twice"
    return True, f"{len(layout.eligible_layers)} of {layout.num_layers}"


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]


def table(found: Sequence[Outcome]) -> str:
    """The two tables of the document."""
    works = [outcome for outcome in found if outcome.works]
    others = [outcome for outcome in found if not outcome.works]
    rows = [f"| {outcome.model_type} | {outcome.kind} | {outcome.text} |" for outcome in works]
    refused = [f"| {outcome.model_type} | {outcome.kind} | {_cell(outcome.text)} |" for outcome in others]
    return "\n".join(
        [
            f"{len(works)} of the {len(found)} `model_type`s that transformers {transformers.__version__} has a causal "
            "language model for work end to end:",
            "",
            "| model type | class | layers with units (small model) |",
            "| --- | --- | --- |",
            *rows,
            "",
            "The others:",
            "",
            "| model type | class | why not |",
            "| --- | --- | --- |",
            *refused,
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Try, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    found = []
    for outcome in outcomes(options.names or model_types()):
        print(f"{'works' if outcome.works else 'no   '} {outcome.model_type}: {outcome.text}", flush=True)
        found.append(outcome)
    if not options.names:
        before, rest = options.document.read_text().split(BEGIN)
        after = rest.split(END)[1]
        options.document.write_text(f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}")


if __name__ == "__main__":
    main()
