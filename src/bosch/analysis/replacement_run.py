"""The replacement test on two finished searches, into a directory that resumes (paper, Table 5)."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from bosch.analysis.masks import MaskFile
from bosch.analysis.replacement import score_replacements, units_to_put_back
from bosch.analysis.searches import load_pair, read_settings
from bosch.errors import BoschError
from bosch.experiment.directory import ExperimentDirectory, make_directory, open_directory
from bosch.experiment.opening import Experiment, open_experiment, score_row
from bosch.experiment.settings import ExperimentSettings, check_integer
from bosch.files import write_json
from bosch.provenance import provenance
from bosch.tables import text_table, write_csv

REPLACEMENT_SCHEMA = "bosch.replacement/1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplacementSettings(ExperimentSettings):
    """All that determines the test's result.

    Args:
        smaller, larger: keys of the two masks.
        replacements: A' of the seeds 0, 1, ...

    Raises:
        BoschError: a value out of range.
    """

    smaller: str
    larger: str
    replacements: int

    def __post_init__(self) -> None:
        check_integer("the number of seeds", self.replacements, 1)
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class ReplacementDirectory(ExperimentDirectory):
    """Where the test keeps everything it makes."""

    schema = "bosch.replacement_run/1"

    @property
    def scores(self) -> Path:
        """A and every A', with their held-out scores."""
        return self.path / "replacement.json"

    @property
    def table(self) -> Path:
        """The same, without the scores per task."""
        return self.path / "replacement.csv"

    @property
    def results(self) -> tuple[Path, ...]:
        """The scores, twice."""
        return (self.scores, self.table)

    @property
    def has_evaluations(self) -> bool:
        """Whether it got as far as its first evaluation: here, on the held-out set."""
        return self.heldout_journal.is_file() and self.heldout_journal.read_bytes().count(b"\n") > 1


def run_replacement(
    smaller: Path,
    larger: Path,
    output: Path,
    *,
    num_seeds: int,
    trust_remote_code: bool = False,
    overwrite: bool = False,
) -> ReplacementDirectory:
    """Score A and A' on the held-out set of the larger search; the same call on the same directory goes on.

    Args:
        smaller, larger: directories of two finished searches of one model and window.
        output: the test's directory.
        num_seeds: how many A' to score.
        trust_remote_code: let the checkpoint bring Python code of its own. That a search was allowed to does not count:
            its directory may come from somebody else.
        overwrite: replace another test that is there.

    Raises:
        BoschError: anything that the user can mend; nothing that was there is lost.
    """
    small, large = load_pair(smaller, larger)
    departed = units_to_put_back(small.mask, large.mask)
    settings = ReplacementSettings(
        **{**read_settings(larger), "trust_remote_code": trust_remote_code},
        smaller=small.mask.key(),
        larger=large.mask.key(),
        replacements=num_seeds,
    )
    settings.haystack_text()  # what is wrong with it is said before a directory is made
    run = ReplacementDirectory(output)
    open_directory(run, settings, overwrite=overwrite)
    with open_experiment(settings, run) as experiment:
        if experiment.facts["model_hash"] != large.model_hash:
            raise BoschError(
                f"{settings.model} is not the model that {larger} searched: its weights, or their dtype on this "
                "machine, are others"
            )
        rows = _score(experiment, small, large, num_seeds)
        facts = {**experiment.facts, "heldout": experiment.describe_heldout(), **provenance()}
        write_json(
            run.scores, {"schema": REPLACEMENT_SCHEMA, "facts": facts, "departed": sorted(departed), "rows": rows}
        )
        columns = ("name", "ratio", "mask", "accuracy", "nll", "examples")
        write_csv(run.table, columns, ([{**row, **row["heldout"]}[name] for name in columns] for row in rows))
    return run


def replacement_table(rows: Sequence[dict[str, Any]]) -> str:
    """Held-out scores of A, and of A' as mean and spread over the seeds."""
    original, *replaced = (row["heldout"] for row in rows)
    cells = []
    for kind, digits in (("accuracy", 2), ("nll", 3)):
        values = [score[kind] for score in replaced]
        cells.append((f"{original[kind]:.{digits}f}", f"{fmean(values):.{digits}f} ± {pstdev(values):.{digits}f}"))
    ratio = f"{rows[0]['ratio']:.3f}"
    names = ("A", f"A' (mean of {len(replaced)}, ± spread)")
    header = ["mask", "ratio", "held-out accuracy", "held-out NLL"]
    lines = [[name, ratio, *scores] for name, scores in zip(names, zip(*cells, strict=True), strict=True)]
    return "\n".join(text_table(header, lines))


def _score(experiment: Experiment, small: MaskFile, large: MaskFile, num_seeds: int) -> list[dict[str, Any]]:
    experiment.progress.on_stage("held-out scores", 1 + num_seeds)
    _, replacements = score_replacements(small.mask, large.mask, experiment.judge, num_seeds)
    make_directory(experiment.directory.path_masks)
    rows = [score_row("A", large.mask, heldout=experiment.judge)]
    for one in replacements:
        name = f"A' seed {one.seed}"
        file = experiment.directory.path_masks / f"replaced-{one.seed}.json"
        one.mask.save(file, {"method": name, **experiment.facts, **provenance()})
        rows.append(score_row(name, one.mask, heldout=experiment.judge))
    return rows
