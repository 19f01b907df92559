"""The replacement test (paper C.1): does it matter that units left the choice when the ratio grew?

The units that departed between two ratios take the place of as many random ones in the larger choice A. Were the
locality of a unit a fixed property, the result A' would be about as good as A.
"""

import dataclasses
import random
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bosch.common.files import write_json
from bosch.common.options import check_integer, convert
from bosch.common.output import make_directory
from bosch.common.provenance import provenance
from bosch.common.tables import mean_and_spread, text_table, write_csv
from bosch.errors import BoschError
from bosch.experiments.experiment import Experiment, Given, open_experiment
from bosch.experiments.settings import ExperimentSettings
from bosch.heads import HeadMask, Unit
from bosch.runs import ExperimentDirectory, MaskFile, RunDirectory, load_mask
from bosch.scoring.objective import Score


class Scorer(Protocol):
    """What the test needs of an evaluator."""

    def score(self, mask: HeadMask) -> Score:
        """Score of a mask."""
        ...


@dataclasses.dataclass(frozen=True)
class Replacement:
    """One outcome of the test.

    Args:
        seed: of the random units.
        mask: A'.
        score: of A'.
    """

    seed: int
    mask: HeadMask
    score: Score


def units_to_put_back(smaller: HeadMask, larger: HeadMask) -> frozenset[Unit]:
    """Units that slide at the smaller ratio and not at the larger one, of two masks that the test can be made with.

    Raises:
        BoschError: the masks differ in layout, window or sinks, are not of growing size, or no unit departed.
    """
    ways = [(mask.window, mask.layer_windows, mask.sinks) for mask in (smaller, larger)]
    if ways[0] != ways[1]:
        raise BoschError(
            f"the masks slide differently: the smaller with window {smaller.shown_window} and {smaller.sinks} sinks, "
            f"the larger with window {larger.shown_window} and {larger.sinks} sinks"
        )
    if smaller.layout != larger.layout or not 0 < smaller.num_localized < larger.num_localized:
        raise BoschError(
            "the replacement test needs two masks of one model, the smaller with some sliding KV heads and the larger "
            f"with more; got {smaller} and {larger}"
        )
    departed = smaller.localized - larger.localized
    if not departed:
        raise BoschError(
            f"all {smaller.num_localized} units that slide in the smaller mask slide in the larger one too; "
            "there is none to put back"
        )
    return departed


def replace_randomly(smaller: HeadMask, larger: HeadMask, seed: int) -> HeadMask:
    """A': the units to put back slide, and as many random ones of those that slide in the larger mask become full.

    Every choice of the latter is equally likely. The number of sliding units, and so the ratio, stays.

    Args:
        smaller: the mask at the smaller ratio.
        larger: the mask at the larger ratio; the same layout, window and sinks.
        seed: the same seed gives the same mask in any process.

    Raises:
        BoschError: as `units_to_put_back`.
    """
    departed = units_to_put_back(smaller, larger)
    displaced = random.Random(f"replacement {seed}").sample(sorted(larger.localized), len(departed))
    return larger.assign({**dict.fromkeys(displaced, True), **dict.fromkeys(departed, False)})


def score_replacements(
    smaller: HeadMask, larger: HeadMask, scorer: Scorer, num_seeds: int
) -> tuple[Score, tuple[Replacement, ...]]:
    """The score of A, and A' with its score for the seeds 0, 1, ... (the paper takes three).

    Raises:
        BoschError: as `units_to_put_back`, or the scorer refuses the masks.
    """
    masks = [replace_randomly(smaller, larger, seed) for seed in range(num_seeds)]
    original = scorer.score(larger)
    return original, tuple(Replacement(seed, mask, scorer.score(mask)) for seed, mask in enumerate(masks))


def load_pair(smaller: Path, larger: Path) -> tuple[MaskFile, MaskFile]:
    """The masks of two searches of one model.

    Raises:
        BoschError: one is no finished search, or they are of different models.
    """
    for path in (smaller, larger):
        if not path.is_dir():
            raise BoschError(f"{path} is not a directory; expected that of a finished search")
    small, large = load_mask(smaller), load_mask(larger)
    for file in (small, large):
        if file.model_hash is None:
            raise BoschError(f"{file.path} does not say which model its mask is for; expected a finished search")
    if small.model_hash != large.model_hash:
        raise BoschError(
            f"{smaller} and {larger} searched different models, or one model in two dtypes: {small.model} "
            f"({str(small.model_hash)[:12]}) and {large.model} ({str(large.model_hash)[:12]})"
        )
    return small, large


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a search that say how masks are scored, as data. What an earlier version did not have yet was
    what its default is.

    Raises:
        BoschError: there are none, or one has a wrong type.
    """
    run = RunDirectory(path)
    found, kinds = run.read_settings(), typing.get_type_hints(ExperimentSettings)
    settings = {}
    for field in dataclasses.fields(ExperimentSettings):
        if field.name in found or field.default is dataclasses.MISSING:
            settings[field.name] = convert(
                f"{run.settings}: its {field.name}", kinds[field.name], found.get(field.name)
            )
    return settings


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
    called = "replacement test"
    results = ("replacement.json", "replacement.csv", "heldout.jsonl", "journal.jsonl", "masks")

    @property
    def scores(self) -> Path:
        """A and every A', with their held-out scores."""
        return self.path / "replacement.json"

    @property
    def table(self) -> Path:
        """The same, without the scores per task."""
        return self.path / "replacement.csv"


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
    run = ReplacementDirectory(output)
    searched = Given(model_hash=large.model_hash)
    with open_experiment(settings, run, searched, overwrite=overwrite) as experiment:
        rows = _score(experiment, run, small, large, num_seeds)
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
        scores = [score[kind] for score in replaced]
        cells.append((f"{original[kind]:.{digits}f}", mean_and_spread(scores, digits)))
    ratio = f"{rows[0]['ratio']:.3f}"
    names = ("A", f"A' (mean of {len(replaced)}, ± spread)")
    header = ["mask", "ratio", "held-out accuracy", "held-out NLL"]
    lines = [[name, ratio, *scores] for name, scores in zip(names, zip(*cells, strict=True), strict=True)]
    return "\n".join(text_table(header, lines))


def _score(
    experiment: Experiment, run: ReplacementDirectory, small: MaskFile, large: MaskFile, num_seeds: int
) -> list[dict[str, Any]]:
    experiment.progress.on_stage("held-out scores", 1 + num_seeds)
    _, replacements = score_replacements(small.mask, large.mask, experiment.heldout, num_seeds)
    make_directory(run.masks)
    rows = [experiment.score_row("A", large.mask, ["heldout"])]
    for one in replacements:
        name = f"A' seed {one.seed}"
        one.mask.save(run.masks / f"replaced-{one.seed}.json", {"method": name, **experiment.facts, **provenance()})
        rows.append(experiment.score_row(name, one.mask, ["heldout"]))
    return rows
