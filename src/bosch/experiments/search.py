"""One search: from a model and a target to masks, their scores and a report."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.cache_size import CacheBudget, CacheSize
from bosch.common.files import as_written_by, read_json, write_json
from bosch.common.output import make_directory
from bosch.common.provenance import provenance
from bosch.common.tables import html_table
from bosch.experiments.experiment import Experiment, Given, open_experiment
from bosch.experiments.search_report import mask_figure, write_report
from bosch.experiments.settings import SearchSettings
from bosch.experiments.widening import widen
from bosch.heads import HeadMask
from bosch.runs import RunDirectory, score_table
from bosch.scoring.objective import Objective
from bosch.selectors import Selection, random_mask

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_RANDOM_MASKS = 5
DEFAULT_SHOWN_TOKENS = 32_768


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found. In a terminal it prints as its table of scores, in a notebook also as the mask's picture.

    Args:
        masks: one for each ratio that was asked for, smallest first.
        rows: scores of the masks beside the original, all sliding and random ones, as in `scores.json`.
        facts: of the model and the search, as in `scores.json`.
        directory: where everything lies; None where nothing was written.
    """

    masks: tuple[HeadMask, ...]
    rows: tuple[Mapping[str, Any], ...]
    facts: Mapping[str, Any]
    directory: RunDirectory | None = None

    @property
    def mask(self) -> HeadMask:
        """The mask; of several ratios, that of the largest."""
        return self.masks[-1]

    def table(self) -> str:
        """The scores as a Markdown table."""
        return "\n".join(score_table(self.rows))

    def plot(self) -> "Figure":
        """Heat map of the mask, layers upwards."""
        return mask_figure(self.mask)

    def __str__(self) -> str:
        return f"{self.mask}\n\n{self.table()}"

    def _repr_html_(self) -> str:
        return html_table(str(self.mask), score_table(self.rows), self.plot())


def search(
    settings: SearchSettings, output: Path | None = None, *, given: Given | None = None, overwrite: bool = False
) -> SearchResult:
    """Search a model's heads; with an output directory, the same call goes on where it was stopped.

    Args:
        settings: everything that determines the result.
        output: the run's directory, in which everything is kept; None: nothing is written.
        given: what need not be loaded or made.
        overwrite: replace another run that is there.

    Raises:
        BoschError: anything that the user can mend; nothing that was there is lost.
    """
    run = None if output is None else RunDirectory(output)
    with open_experiment(settings, run, given or Given(), overwrite=overwrite) as experiment:
        if run and run.is_finished:  # and of this very model and these very examples, as the journals say
            return read_result(run)
        selections, facts = _select(experiment, settings)
        if run:
            _save_selections(run, selections, settings, facts)
        rows = _compare(experiment, selections, settings)
        facts |= {"heldout": experiment.describe_heldout(), "cache_tokens": _shown_tokens(experiment, settings)}
        if run:
            write_json(run.scores, {"facts": facts, "rows": rows})
            write_report(run, settings, selections[-1], experiment.evaluator.history)
    return SearchResult(tuple(selection.mask for selection in selections), tuple(rows), facts, run)


def read_result(run: RunDirectory) -> SearchResult:
    """What a finished search left in its directory.

    Raises:
        BoschError: a file is not what a search writes.
    """
    largest, scores = HeadMask.load(run.mask), read_json(run.scores)
    settings = run.read_settings()
    with as_written_by("a search", run.scores):
        chosen = {row["mask"] for row in scores["rows"] if row["name"] == settings["method"]}
        beside = (HeadMask.load(path, largest.layout) for path in sorted(run.masks.glob("*.json")))
        smaller = (mask for mask in beside if mask.key() in chosen and mask.num_localized != largest.num_localized)
        found = SearchResult((*smaller, largest), tuple(scores["rows"]), scores["facts"], run)
        found.table()
    return found


def _select(experiment: Experiment, settings: SearchSettings) -> tuple[list[Selection], dict[str, Any]]:
    """The selections, smallest ratio first, and what is to be said about them everywhere."""
    method, started = settings.make_method(), time.monotonic()
    measured = experiment.measure([method])
    problem = experiment.problem(measured)
    on_stage = experiment.progress.on_stage
    on_stage("anchors", 2)
    anchors = problem.objective.anchors

    cache_size = experiment.evaluator.decoder.cache_size
    budget = settings.evaluations_per_layer(method, problem.layout)

    def select(ratio: float) -> Selection:
        share = share_of_exchanges(settings, ratio, problem.layout.num_units)
        sharing = dataclasses.replace(problem, share_of_exchanges=share)
        selection = method.select(sharing, ratio, budget=budget, seed=settings.seed, on_stage=on_stage)
        if not settings.wider_windows:
            return selection
        return widen(
            selection,
            problem.objective,
            windows=sorted(settings.wider_windows),
            num_bytes=lambda mask: cache_size.nbytes(mask, _shown_tokens(experiment, settings)),
            limit=budget * len(problem.layout.eligible_layers),
            on_stage=on_stage,
        )

    selections = select_targets(settings, select, problem.objective, cache_size)
    cost = problem.objective.cost()
    if method.name in measured:
        cost += measured[method.name].cost
    return selections, {
        **experiment.facts,
        "anchors": list(anchors),
        "calibration": experiment.evaluator.examples.fingerprint,
        "seconds_this_time": round(time.monotonic() - started, 1),
        "evaluations": cost.evaluations,
        "full_passes": round(cost.full_passes, 2),
    }


def _save_selections(
    run: RunDirectory, selections: list[Selection], settings: SearchSettings, facts: Mapping[str, Any]
) -> None:
    """The largest ratio's mask is the result; the others lie beside it."""
    origin = {"settings": dataclasses.asdict(settings), **facts, **provenance()}
    *smaller, largest = selections
    largest.mask.save(run.mask, origin)
    records = {"smaller_ratios": [selection.record for selection in smaller]} if smaller else {}
    write_json(run.selection, {**largest.record, **records, "facts": dict(facts)})
    beside = [*masks_on_the_way(selections), *(selection.mask for selection in smaller)]
    if beside:
        make_directory(run.masks)
    for mask in beside:
        mask.save(run.masks / f"{mask.num_localized:04d}.json", origin)


def _compare(experiment: Experiment, selections: list[Selection], settings: SearchSettings) -> list[dict[str, Any]]:
    """Scores of the chosen masks beside the original, all sliding and random masks. The masks on the way have scores
    on the calibration set already; on the held-out set they would cost as much as all the others together."""
    evaluator, heldout = experiment.evaluator, experiment.heldout
    largest = selections[-1].mask.ratio
    randoms = [random_mask(evaluator.full, largest, settings.seed + i) for i in range(NUM_RANDOM_MASKS)]
    one_window = [selection.path[-1] for selection in selections] if settings.wider_windows else []
    named = [
        ("original", evaluator.full),
        *((f"{settings.method}, one window", mask) for mask in one_window),
        *((settings.method, selection.mask) for selection in selections),
        *((f"random {i}", mask) for i, mask in enumerate(randoms, start=1)),
        ("all sliding", evaluator.sliding),
    ]
    missing = sum(not scorer.is_known(mask) for _, mask in named for scorer in (evaluator, heldout))
    experiment.progress.on_stage("scores on both sets", missing)
    size, tokens = evaluator.decoder.cache_size, _shown_tokens(experiment, settings)

    def row(name: str, mask: HeadMask, *splits: str) -> dict[str, Any]:
        return {**experiment.score_row(name, mask, splits), "cache_bytes": size.nbytes(mask, tokens)}

    rows = [row(name, mask, "calibration", "heldout") for name, mask in named]
    on_the_way = f"{settings.method} on the way"
    return rows + [row(on_the_way, mask, "calibration") for mask in masks_on_the_way(selections)]


def _shown_tokens(experiment: Experiment, settings: SearchSettings) -> int:
    """At how many tokens caches are compared: those of the budget, or as many as the model was made for."""
    if settings.kv_budget is not None:
        return CacheBudget.parse(settings.kv_budget).num_tokens
    return experiment.evaluator.decoder.max_length or DEFAULT_SHOWN_TOKENS


Select = Callable[[float], Selection]


def select_targets(
    settings: SearchSettings, select: Select, objective: Objective, cache_size: CacheSize
) -> list[Selection]:
    """The selections that were asked for, smallest ratio first.

    Args:
        settings: name the target.
        select: the method, as a function of the ratio.
        objective: normalized score of masks.
        cache_size: of the model.

    Raises:
        BoschError: the budget is too small for any mask.
    """
    full = objective.scorer.full
    if settings.max_drop is not None:
        return [_largest(select, objective, 1 - settings.max_drop)]
    if settings.kv_budget is not None:
        count = cache_size.num_localized_within(CacheBudget.parse(settings.kv_budget), full)
        return [select(count / full.layout.num_units)]
    return [select(ratio) for ratio in settings.fixed_ratios]


def share_of_exchanges(settings: SearchSettings, ratio: float, num_units: int) -> float:
    """Which part of a search's exchanges one of its ratios may make, in [0, 1].

    Several ratios share them in proportion: the larger one has more to win, and its measurements end sooner. A
    bisection takes one ratio for every halving, and gives all the same.
    """
    if settings.max_drop is not None:
        return 1 / num_units.bit_length()
    total = sum(settings.fixed_ratios)
    return ratio / total if total else 1.0


def _largest(select: Select, objective: Objective, floor: float) -> Selection:
    """The selection with most sliding units whose score reaches the floor, by bisection: scores are taken to fall as
    more units slide. The evaluations that two ratios share are made once."""
    num_units = objective.scorer.layout.num_units
    best, reached, below = select(0.0), 0, num_units + 1
    while reached + 1 < below:
        count = (reached + below) // 2
        selection = select(count / num_units)
        if objective(selection.mask) >= floor:
            best, reached = selection, count
        else:
            below = count
    return best


def masks_on_the_way(selections: Sequence[Selection]) -> list[HeadMask]:
    """One mask for each number of sliding units that no selection has, as the selections' paths came by them; smallest
    first."""
    chosen = {selection.mask.num_localized for selection in selections}
    by_count = {mask.num_localized: mask for selection in selections for mask in selection.path}
    return [by_count[count] for count in sorted(by_count.keys() - chosen - {0})]
