"""A model with its two example sets, that can be asked what its masks are worth."""

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bosch.calibration import ExampleSet, Split, make_examples, own_examples
from bosch.common.options import read_haystack
from bosch.common.output import Claim, make_directory
from bosch.common.progress import Progress
from bosch.common.provenance import model_hash
from bosch.decoder import Decoder, modes_kept
from bosch.errors import BoschError
from bosch.experiments.settings import ExperimentSettings
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.probing import Subject
from bosch.runs import ExperimentDirectory
from bosch.scoring.distributed import DistributedEvaluator, Workers
from bosch.scoring.evaluator import Evaluator, default_batch_tokens
from bosch.scoring.journal import Journal, read_subject
from bosch.scoring.objective import Objective
from bosch.selectors.method import Measured, Method, Problem
from bosch.selectors.static.ranking import Ranking, measure_rankings
from bosch.selectors.unit_scores import load_unit_scores, save_unit_scores

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class Given:
    """What a caller hands over in place of what the settings name.

    Args:
        model: loaded, in whatever dtype and wherever it is; it is left as it was.
        tokenizer: the model's; needed where the examples are to be made.
        calibration, heldout: the example sets.
        model_hash: that the model must have; a model that has changed since it was searched is refused.
    """

    model: "PreTrainedModel | None" = None
    tokenizer: "PreTrainedTokenizerBase | None" = None
    calibration: ExampleSet | None = None
    heldout: ExampleSet | None = None
    model_hash: str | None = None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A model with its two example sets, ready to score masks.

    Args:
        settings: of the experiment.
        directory: where it keeps what it measures; None: nowhere.
        facts: model, its hash and dtype, as the journals say them.
        evaluator: scores masks on the calibration set.
        heldout: scores masks on the held-out set.
        progress: what a terminal is shown.
        tokenizer: the model's, if there is one.
    """

    settings: ExperimentSettings
    directory: ExperimentDirectory | None
    facts: Mapping[str, str]
    evaluator: Evaluator
    heldout: Evaluator
    progress: Progress
    tokenizer: "PreTrainedTokenizerBase | None"

    def problem(self, measured: Mapping[str, Measured] | None = None) -> Problem:
        """A method's view, whose objective counts for this one method alone. It begins at the full model, whatever was
        searched before: so its first measurements, which are of that model's neighbours, are short."""
        self.evaluator.rebase(self.evaluator.full)
        settings, evaluator = self.settings, self.evaluator
        subject = Subject(
            evaluator.decoder,
            evaluator.examples,
            settings.window,
            settings.sinks,
            settings.seed,
            self.progress.advance,
            self.tokenizer,
        )
        return Problem(Objective(evaluator, settings.objective), subject, measured or {})

    def measure(self, methods: Sequence[Method]) -> dict[str, Measured]:
        """Unit scores of those methods that have them; read from the directory where they were measured before."""
        rankings = {one.name: one for one in methods if isinstance(one, Ranking)}
        origin: dict[str, Any] = {**self.facts, "examples": self.evaluator.examples.fingerprint}
        origin |= {"window": self.settings.window, "sinks": self.settings.sinks, "seed": self.settings.seed}
        found: dict[str, Measured] = {}
        for name, ranking in rankings.items():
            path, parameters = self._unit_scores(name), ranking.options()
            if path and (known := load_unit_scores(path, self.evaluator.layout, _with(origin, parameters))):
                found[name] = known
        missing = [ranking for name, ranking in rankings.items() if name not in found]
        for name, one in measure_rankings(missing, self.problem(), self.progress.on_stage) if missing else ():
            if path := self._unit_scores(name):
                make_directory(path.parent)
                save_unit_scores(path, one, _with(origin, rankings[name].options()))
            found[name] = one
        return found

    def _unit_scores(self, name: str) -> Path | None:
        return self.directory.unit_scores / f"{name}.json" if self.directory else None

    def describe_heldout(self) -> dict[str, Any]:
        """What the held-out set can show: how far back its needles lie against what sliding layers alone can reach."""
        reach = self.evaluator.sliding.reach
        return {
            "fingerprint": self.heldout.examples.fingerprint,
            "sliding_reach_tokens": reach,
            "share_of_needles_beyond_reach": self.heldout.examples.share_beyond(reach),
        }

    def score_row(
        self, name: str, mask: HeadMask, splits: Sequence[str] = ("calibration", "heldout")
    ) -> dict[str, Any]:
        """A mask's scores as plain data, one entry for each of the example sets.

        Raises:
            BoschError: an NLL is not finite.
        """
        row: dict[str, Any] = {"name": name, "ratio": mask.ratio, "mask": mask.key()}
        for split in splits:
            scorer = self.evaluator if split == "calibration" else self.heldout
            score = scorer.score(mask)
            score.check_finite(f"{name} on the {split} set")
            row[split] = {
                "accuracy": score.accuracy,
                "nll": score.nll,
                "examples": len(score.hits),
                "accuracy_by_task": scorer.examples.accuracy_by_task(score.hits),
            }
        return row


@contextlib.contextmanager
def open_experiment(
    settings: ExperimentSettings,
    directory: ExperimentDirectory | None,
    given: Given,
    *,
    overwrite: bool = False,
) -> Iterator[Experiment]:
    """Load the model, make both example sets, and hold the directory with both journals while the block runs.

    Args:
        settings: of the experiment.
        directory: where to keep what is measured; None: nowhere.
        given: what need not be loaded or made.
        overwrite: replace what another experiment left in the directory.

    Raises:
        BoschError: the model cannot be had, the examples cannot be made or are not for it, or the directory is taken;
            it is then as it was.
    """
    haystack = read_haystack(settings.haystack)
    with contextlib.ExitStack() as stack:
        claim = stack.enter_context(directory.claimed(settings, overwrite=overwrite)) if directory else None
        model, tokenizer = given.model, given.tokenizer
        if model is None:
            model, tokenizer = load(settings)
        elif settings.ray is not None:
            raise BoschError("Ray's workers load the model by its name, and a loaded one was given; expected a name")
        if hasattr(model.config.get_text_config(decoder=True), "bosch"):
            raise BoschError(f"{settings.model} is a hybrid already; expected the original model")
        stack.enter_context(modes_kept(model))
        decoder = Decoder(model)
        if decoder.obstacle:
            print(f"bosch: what is found can be scored but not deployed: {decoder.obstacle}", file=sys.stderr)
        facts = {"model": settings.model, "model_hash": model_hash(model), "dtype": str(model.dtype)}
        if given.model_hash not in (None, facts["model_hash"]):
            raise BoschError(
                f"{settings.model} is not the model that was searched: its weights, or their dtype on this machine, "
                "are others"
            )
        sets = {
            "calibration": given.calibration
            or _make_set(tokenizer, settings, haystack, "calibration", settings.examples),
            "heldout": given.heldout or _make_set(tokenizer, settings, haystack, "heldout", settings.heldout),
        }
        progress = stack.enter_context(contextlib.closing(Progress()))
        make = stack.enter_context(_evaluators(decoder, settings, sets))
        evaluator, heldout = (make(name, on_evaluation=progress.on_evaluation) for name in sets)
        if directory and claim:
            journals = _begin(directory, claim, facts, sets, settings, overwrite)
            for one, journal in zip((evaluator, heldout), journals, strict=True):
                one.use_journal(stack.enter_context(journal))
        yield Experiment(settings, directory, facts, evaluator, heldout, progress, tokenizer)


def load(settings: ExperimentSettings) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """The model and the tokenizer that the settings name."""
    return load_model(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        trust_remote_code=settings.trust_remote_code,
        yarn=settings.yarn,
    )


def _begin(
    directory: ExperimentDirectory,
    claim: Claim,
    facts: Mapping[str, str],
    sets: Mapping[str, ExampleSet],
    settings: ExperimentSettings,
    overwrite: bool,
) -> list[Journal]:
    """Both journals. With `overwrite`, those of a model or of examples that have changed since give way."""
    shape = {"window": settings.window, "sinks": settings.sinks}
    paths = {"calibration": directory.journal, "heldout": directory.heldout_journal}
    subjects = {paths[name]: {**facts, "examples": sets[name].fingerprint, **shape} for name in sets}
    if overwrite and any(read_subject(path) not in (None, subject) for path, subject in subjects.items()):
        claim.replace()
    claim.begin()
    return [Journal(path, subject) for path, subject in subjects.items()]


@contextlib.contextmanager
def _evaluators(
    decoder: Decoder, settings: ExperimentSettings, example_sets: Mapping[str, ExampleSet]
) -> Iterator[Callable[..., Evaluator]]:
    """Make evaluators while the block runs: in this process, or spread over a Ray cluster.

    Yields:
        A function from the name of a set, and who listens, to that set's evaluator.

    Raises:
        BoschError: Ray is asked for and not installed.
    """
    options: dict[str, dict[str, Any]] = {
        name: {
            "examples": examples,
            "window": settings.window,
            "sinks": settings.sinks,
            # One budget for the run, and one way to make batches, whatever the workers have.
            "memory_bytes": int(settings.memory_gib * 2**30) // len(example_sets),
            "batch_tokens": default_batch_tokens(decoder),
        }
        for name, examples in example_sets.items()
    }
    if settings.ray is None:
        yield lambda name, **listeners: Evaluator(decoder, **options[name], **listeners)
        return
    same_dtype = dataclasses.replace(settings, dtype=str(decoder.model.dtype).removeprefix("torch."))
    load_one = functools.partial(_load_model, same_dtype)
    with contextlib.closing(Workers(settings.ray, load_one, options, settings.workers)) as workers:
        yield lambda name, **listeners: DistributedEvaluator(
            decoder, name=name, workers=workers, **options[name], **listeners
        )


def _load_model(settings: ExperimentSettings) -> "PreTrainedModel":
    model, _ = load(settings)
    return model


def _make_set(
    tokenizer: "PreTrainedTokenizerBase | None",
    settings: ExperimentSettings,
    haystack: str | None,
    split: Split,
    num_examples: int,
) -> ExampleSet:
    if tokenizer is None:
        raise BoschError("examples are made with the model's tokenizer, got none; expected it, or both example sets")
    options: dict[str, Any] = {"num_examples": num_examples, "split": split, "chat": settings.chat}
    if settings.data is not None:
        return own_examples(tokenizer, Path(settings.data), lengths=settings.lengths, **options)
    return make_examples(
        tokenizer,
        tasks=settings.tasks,
        lengths=settings.lengths,
        seed=settings.seed,
        haystack_text=haystack,
        **options,
    )


def _with(origin: Mapping[str, Any], parameters: Sequence[str]) -> dict[str, Any]:
    """What unit scores are of; a method's parameters where they are not the default ones."""
    return {**origin, **({"parameters": list(parameters)} if parameters else {})}
