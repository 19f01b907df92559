"""From settings to a model that can be asked what its masks are worth."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.calibration import ExampleSet, Split, make_examples, own_examples
from bosch.counting import CountingScorer
from bosch.decoder import Decoder
from bosch.evaluator import Evaluator
from bosch.experiment.directory import ExperimentDirectory, make_directory
from bosch.experiment.evaluators import evaluators, load
from bosch.experiment.progress import Progress
from bosch.experiment.settings import ExperimentSettings
from bosch.experiment.unit_scores import load_unit_scores, save_unit_scores
from bosch.heads import HeadMask
from bosch.journal import Journal
from bosch.objective import Objective
from bosch.probing import Subject
from bosch.provenance import model_hash
from bosch.selectors import SELECTORS, Problem
from bosch.selectors.static import Measured, Ranking, measure

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A model with its two example sets, ready to score masks.

    Args:
        settings: of the experiment.
        directory: where it keeps what it measures.
        facts: model, its hash and dtype, as the journals say them.
        evaluator: scores masks on the calibration set.
        judge: scores masks on the held-out set.
        progress: what a terminal is shown.
        tokenizer: the model's.
    """

    settings: ExperimentSettings
    directory: ExperimentDirectory
    facts: Mapping[str, str]
    evaluator: Evaluator
    judge: Evaluator
    progress: Progress
    tokenizer: "PreTrainedTokenizerBase"

    @property
    def subject(self) -> Subject:
        """The full model and its calibration set, for methods that look inside."""
        return Subject(
            self.evaluator.decoder,
            self.evaluator.examples,
            self.settings.window,
            self.settings.sinks,
            self.settings.seed,
            self.progress.advance,
            self.tokenizer,
        )

    def problem(self, measured: Mapping[str, Measured] | None = None) -> Problem:
        """A selector's view, whose scorer counts for this one selector alone."""
        objective = Objective(CountingScorer(self.evaluator), self.settings.objective)
        return Problem(objective, self.subject, measured or {})

    def measure(self, methods: Sequence[str]) -> dict[str, Measured]:
        """Unit scores of those methods that have them; read from the directory where they were measured before."""
        rankings = {name: ranking for name in methods if isinstance(ranking := SELECTORS[name], Ranking)}
        origin: dict[str, Any] = {**self.facts, "examples": self.evaluator.examples.fingerprint}
        origin |= {"window": self.settings.window, "sinks": self.settings.sinks, "seed": self.settings.seed}
        folder, layout = self.directory.unit_scores, self.evaluator.layout
        known = {name: load_unit_scores(folder / f"{name}.json", layout, origin) for name in rankings}
        found = {name: one for name, one in known.items() if one is not None}
        missing = {name: rankings[name].measure for name in rankings if name not in found}
        if missing:
            make_directory(folder)
            for name, one in measure(missing, self.problem(), self.progress.on_stage):
                save_unit_scores(folder / f"{name}.json", one, origin)
                found[name] = one
        return found

    def describe_heldout(self) -> dict[str, Any]:
        """What the held-out set can show: how far back its needles lie against what sliding layers alone can reach."""
        reach = self.evaluator.sliding.reach
        return {
            "fingerprint": self.judge.examples.fingerprint,
            "sliding_reach_tokens": reach,
            "share_of_needles_beyond_reach": self.judge.examples.share_beyond(reach),
        }


@contextlib.contextmanager
def open_experiment(settings: ExperimentSettings, directory: ExperimentDirectory) -> Iterator[Experiment]:
    """Load the model, make both example sets, and hold both journals while the block runs.

    Raises:
        BoschError: the model cannot be had, the examples cannot be made, or the journals are of something else.
    """
    haystack = settings.haystack_text()
    model, tokenizer = load(settings)
    decoder = Decoder(model)
    facts = {"model": settings.model, "model_hash": model_hash(model), "dtype": str(model.dtype)}
    calibration, heldout = _make_sets(tokenizer, settings, haystack)
    with (
        contextlib.closing(Progress()) as progress,
        _open_journal(directory.journal, facts, calibration, settings) as journal,
        _open_journal(directory.heldout_journal, facts, heldout, settings) as heldout_journal,
        evaluators(decoder, settings, {"calibration": calibration, "heldout": heldout}) as make,
    ):
        evaluator = make("calibration", journal=journal, on_evaluation=progress.on_evaluation)
        judge = make("heldout", journal=heldout_journal, on_evaluation=progress.on_evaluation)
        yield Experiment(settings, directory, facts, evaluator, judge, progress, tokenizer)


def score_row(name: str, mask: HeadMask, **scorers: Evaluator) -> dict[str, Any]:
    """A mask's scores as plain data, one entry for each of the named scorers.

    Raises:
        BoschError: an NLL is not finite.
    """
    row: dict[str, Any] = {"name": name, "ratio": mask.ratio, "mask": mask.key()}
    for split, scorer in scorers.items():
        score = scorer.score(mask)
        score.check_finite(f"{name} on the {split} set")
        row[split] = {
            "accuracy": score.accuracy,
            "nll": score.nll,
            "examples": len(score.hits),
            "accuracy_by_task": scorer.examples.accuracy_by_task(score.hits),
        }
    return row


def _make_sets(
    tokenizer: "PreTrainedTokenizerBase", settings: ExperimentSettings, haystack: str | None
) -> tuple[ExampleSet, ExampleSet]:
    """The calibration set and the held-out set."""

    def make(split: Split, num_examples: int) -> ExampleSet:
        if settings.data is not None:
            return own_examples(
                tokenizer,
                Path(settings.data),
                lengths=settings.length,
                num_examples=num_examples,
                split=split,
                chat=settings.chat,
            )
        return make_examples(
            tokenizer,
            tasks=settings.tasks,
            lengths=settings.length,
            num_examples=num_examples,
            seed=settings.seed,
            split=split,
            haystack_text=haystack,
            chat=settings.chat,
        )

    return make("calibration", settings.examples), make("heldout", settings.heldout)


def _open_journal(path: Path, facts: Mapping[str, str], examples: ExampleSet, settings: ExperimentSettings) -> Journal:
    shape = {"window": settings.window, "sinks": settings.sinks}
    return Journal(path, {**facts, "examples": examples.fingerprint, **shape})
