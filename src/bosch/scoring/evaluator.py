"""Masks in, scores out: exactly what a full pass would give, for a fraction of its work.

Four things are always left out because they cannot change the result. A mask seen before is answered from memory. A
pass starts at the lowest layer where the mask differs from the base mask, whose hidden states are kept. The first W
(and S) tokens are the same under every mask: a sliding query among them still sees everything before it, so they are
run once. And of the last layer and the head, only the positions that predict answers are run.

A fifth is left out when asked: a mask that is wanted only if it is good enough is given up once the examples seen so
far, the hardest first, prove that it is not.
"""

import dataclasses
import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from bosch.attention.interface import KeyValue, hybrid_attention
from bosch.calibration import Example, ExampleSet
from bosch.common.files import as_written_by, take_fields
from bosch.decoder import Decoder, LayerCalls
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.models.loading import check_tokens
from bosch.scoring.batches import Batch, answer_tokens, group_by_length, padded_tokens, score_tokens
from bosch.scoring.journal import Journal
from bosch.scoring.objective import Cost, Score

DEFAULT_MEMORY_BYTES = 4 * 2**30
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 4096
"""A CPU gains nothing from larger batches; with small ones a mask is given up sooner."""


def default_batch_tokens(decoder: Decoder) -> int:
    """Tokens in a batch that suit the device that a model is on."""
    return CPU_BATCH_TOKENS if decoder.device.type == "cpu" else GPU_BATCH_TOKENS


Result = tuple[bool, float]
"""Of one example: whether it is answered, and the NLL of the answer."""


class Evaluator:
    """Scores masks of one decoder on one set of examples under one window.

    Args:
        decoder: the model.
        examples: prompts with answers; all longer than the window and the sinks.
        window: W in tokens, the smallest that a layer of a mask may have; sinks: S in tokens.
        memory_bytes: budget for kept activations (hidden states and prefix keys). Less memory means more layers
            run again, never another result.
        batch_tokens: largest number of tokens in a batch, padding included, one example at least; by default what
            suits the device.
        on_evaluation: called after every evaluation that was really run; without a score where it was given up.

    Raises:
        BoschError: no eligible unit, an example beyond the model's length, or a window that sees whole prompts.
    """

    def __init__(
        self,
        decoder: Decoder,
        examples: ExampleSet,
        *,
        window: int,
        sinks: int = 0,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        batch_tokens: int | None = None,
        on_evaluation: Callable[[HeadMask, Score | None], None] | None = None,
    ) -> None:
        self.decoder = decoder
        self.examples = examples
        self.layout = decoder.layout
        self.full = HeadMask.all_full(self.layout, window, sinks)
        self.sliding = HeadMask.all_sliding(self.layout, window, sinks)
        self.base = self.full
        self.journal: Journal | None = None
        self.memory_bytes = memory_bytes
        self.batch_tokens = batch_tokens or default_batch_tokens(decoder)
        self.on_evaluation = on_evaluation
        self._check_examples()
        self._groups = group_by_length(examples.examples, self.batch_tokens)
        self._results: dict[str, dict[int, Result]] = {}
        self._scores: dict[str, Score] = {}
        self._spent: dict[str, tuple[int, float]] = {}
        self._layer_tokens = 0
        self._batches: dict[int, Batch] = {}
        self._keeps_batches = True
        self._stride = self._affordable_stride()

    def use_journal(self, journal: Journal) -> None:
        """Learn what a journal knows, and write every evaluation into it from now on."""
        self.journal = journal
        with as_written_by("a search", journal.path):
            for entry in journal.entries:
                known = take_fields(entry, {"mask": str, "layer_tokens": int})
                self._learn(known["mask"], _from_json(entry), known["layer_tokens"], float(entry["seconds"]))

    @property
    def full_pass_layer_tokens(self) -> int:
        """Layer-tokens of one plain pass over the examples: the unit of cost."""
        return self.decoder.num_layers * sum(len(example.input_ids) for example in self.examples)

    def cost(self, masks: Iterable[HeadMask]) -> Cost:
        """What masks cost when they were run, all examples or some; those that never were cost nothing."""
        spent = [self._spent[key] for key in {mask.key() for mask in masks} if key in self._spent]
        layer_tokens = sum(tokens for tokens, _ in spent)
        return Cost(len(spent), layer_tokens / self.full_pass_layer_tokens, sum(seconds for _, seconds in spent))

    @property
    def history(self) -> list[Score]:
        """Every whole score that is known, in the order in which they were measured."""
        return list(self._scores.values())

    def is_known(self, mask: HeadMask) -> bool:
        """Whether a mask's score is already in memory."""
        return mask.key() in self._scores

    def score(self, mask: HeadMask) -> Score:
        """Score of a mask; one that was seen before costs nothing.

        Raises:
            BoschError: the mask is of another layout, window or number of sinks; or the journal cannot be written.
        """
        key = mask.key()
        if key not in self._scores:
            self.score_while(mask, lambda optimistic: True)
        return self._scores[key]

    def score_while(self, mask: HeadMask, is_wanted: Callable[[Score], bool]) -> tuple[Score, bool]:
        """Score of a mask, given up as soon as it is not wanted any more.

        Args:
            mask: of this evaluator's layout, window and sinks.
            is_wanted: asked before each batch of examples, hardest first, of the score that the mask would have if
                all others were answered with certainty (a hit, an NLL of 0).

        Returns:
            The score, and True; or such an optimistic one, and False. What was known of the mask before saves work
            and has no influence on them.

        Raises:
            BoschError: as `score`.
        """
        is_narrower = min(mask.windows) < self.full.window
        if is_narrower or (mask.layout, mask.window, mask.sinks) != (self.layout, self.full.window, self.full.sinks):
            raise BoschError(
                f"this evaluator is for {self.layout}, window {self.full.window}, {self.full.sinks} sinks; "
                f"the mask is for {mask.layout}, window {min(mask.window, *mask.windows)}, {mask.sinks} sinks"
            )
        started, tokens_before = time.monotonic(), self._layer_tokens
        known = self._results.get(mask.key(), {})
        seen, found = dict[int, Result](), dict[int, Result]()
        order = self._hardest_first()
        missing = [number for number in order if not known.keys() >= set(self._groups[number])]
        runs = self._run_in_turn(missing, mask)
        for number in order:
            if not is_wanted(self._optimistic(seen)):
                break
            if number in missing:
                found |= zip(self._groups[number], next(runs), strict=True)
            seen |= {index: found[index] if index in found else known[index] for index in self._groups[number]}
        if found:
            layer_tokens, seconds = self._layer_tokens - tokens_before, round(time.monotonic() - started, 4)
            if self.journal:
                some = {} if len(found) == len(self.examples) else {"examples": sorted(found)}
                spent = {"layer_tokens": layer_tokens, "seconds": seconds}
                self.journal.append({"mask": mask.key(), **some, **_to_json(found), **spent})
            self._learn(mask.key(), found, layer_tokens, seconds)
            if self.on_evaluation:
                self.on_evaluation(mask, self._scores.get(mask.key()))
        return self._optimistic(seen), len(seen) == len(self.examples)

    def rebase(self, mask: HeadMask) -> None:
        """Make a mask the base, from whose hidden states others start. Costs nothing now: states are kept as passes
        come by them."""
        first = self.base.first_difference(mask)
        for batch in self._batches.values():
            batch.boundaries = {layer: states for layer, states in batch.boundaries.items() if layer <= first}
        self.base = mask

    def run_batch(self, number: int, mask: HeadMask, base: HeadMask) -> tuple[list[Result], int]:
        """Run one batch for an evaluator in another process: its results, and the layer-tokens that they took.

        Args:
            number: of the batch.
            mask: to be scored.
            base: the other evaluator's base.
        """
        if base != self.base:
            self.rebase(base)
        tokens_before = self._layer_tokens
        return self._run(number, mask), self._layer_tokens - tokens_before

    def _optimistic(self, seen: Mapping[int, Result]) -> Score:
        """The score if the examples that are not seen were answered with certainty."""
        results = [seen.get(index, (True, 0.0)) for index in range(len(self.examples))]
        return Score(tuple(hit for hit, _ in results), tuple(nll for _, nll in results))

    def _learn(self, key: str, found: Mapping[int, Result], layer_tokens: int, seconds: float) -> None:
        """Remember what was found on some or all examples under a mask."""
        results = self._results.setdefault(key, {})
        results.update(found)
        if len(results) == len(self.examples):
            self._scores[key] = self._optimistic(results)
        tokens_before, seconds_before = self._spent.get(key, (0, 0.0))
        self._spent[key] = tokens_before + layer_tokens, seconds_before + seconds

    def _hardest_first(self) -> list[int]:
        """Numbers of the groups, by their mean NLL under the base mask; in their order, where that is not known."""
        numbers, score = range(len(self._groups)), self._scores.get(self.base.key())
        if score is None:
            return list(numbers)
        return sorted(numbers, key=lambda number: -fmean(score.nlls[index] for index in self._groups[number]))

    def _run_in_turn(self, numbers: Sequence[int], mask: HeadMask) -> Iterator[list[Result]]:
        """The groups' results under a mask, each run when it is asked for."""
        return (self._run(number, mask) for number in numbers)

    @torch.no_grad()
    def _run(self, number: int, mask: HeadMask) -> list[Result]:
        """A group's results under a mask."""
        with hybrid_attention(self.decoder.model):
            batch = self._batches.get(number) or self._open(self._groups[number])
            if self._keeps_batches:
                self._batches[number] = batch
            return self._score_batch(batch, mask)

    def _score_batch(self, batch: Batch, mask: HeadMask) -> list[Result]:
        token_hits, token_nlls = score_tokens(self._answer_logits(batch, mask), batch.answers[batch.real])
        counts = batch.real.sum(1).tolist()
        parts = zip(token_hits.split(counts), token_nlls.split(counts), strict=True)
        return [(bool(hits.all()), float(nlls.mean())) for hits, nlls in parts]

    def _answer_logits(self, batch: Batch, mask: HeadMask) -> Tensor:
        """Logits (N, vocabulary) at the N positions of the batch that predict answer tokens."""
        decoder, last = self.decoder, self.decoder.num_layers - 1
        common = min(mask.first_difference(self.base), last)
        start = max(layer for layer in batch.boundaries if layer <= common)
        hidden = batch.boundaries[start]
        for layer in range(start, last):
            if layer <= common and layer % self._stride == 0:
                batch.boundaries[layer] = hidden
            state = dataclasses.replace(decoder.state(mask, layer), past=batch.past[layer])
            hidden = decoder.run(layer, hidden, batch.calls, state, batch.suffix)
            self._layer_tokens += hidden.shape[0] * hidden.shape[1]
        if last <= common and last % self._stride == 0:
            batch.boundaries[last] = hidden
        queries = batch.predicting if decoder.tokens_meet_in_attention_only else hidden[:, :, 0]
        self._layer_tokens += queries.numel()
        state = dataclasses.replace(decoder.state(mask, last), past=batch.past[last])
        hidden = decoder.run_last(hidden, batch.calls, state, batch.predicting, batch.suffix)
        return decoder.logits(hidden[batch.real], batch.calls)

    def _affordable_stride(self) -> int:
        """Of how many layers one keeps the hidden states that enter it, so that the memory budget holds for all
        batches; where not even the embeddings fit, no batch is kept."""
        examples = self.examples
        states = held = 0
        for group in self._groups:
            members = [examples[index] for index in group]
            prefix = self._affordable_prefix(members)
            longest = max(len(example.input_ids) for example in members)
            states += len(group) * (longest - prefix) * self.decoder.state_bytes
            held += len(group) * self.decoder.cache_size.nbytes(self.full, prefix)
        inner = self.decoder.num_layers - 1
        affordable = (self.memory_bytes - held - states) // states
        self._keeps_batches = held + states <= self.memory_bytes
        return math.ceil(inner / affordable) if affordable > 0 else self.decoder.num_layers

    def _open(self, indices: Sequence[int]) -> Batch:
        examples = [self.examples[index] for index in indices]
        device = self.decoder.device
        predicting, answers, real = (tensor.to(device) for tensor in answer_tokens(examples))
        hidden, calls = self.decoder.open(padded_tokens(examples).to(device))
        prefix = self._affordable_prefix(examples)
        past = self._run_prefix(hidden, calls, prefix)
        suffix = torch.arange(prefix, calls.num_tokens, device=device)
        boundaries = {0: hidden[:, prefix:].contiguous()}
        return Batch(tuple(indices), calls, prefix, past, suffix, boundaries, predicting, answers, real)

    def _affordable_prefix(self, examples: Sequence[Example]) -> int:
        """P = W + S tokens; none where tokens meet outside attention, or where their keys alone would take more than
        half of the memory."""
        length = min(self.full.window + self.full.sinks, min(example.answer_start - 1 for example in examples))
        bytes_needed = self.decoder.cache_size.nbytes(self.full, length) * len(self.examples)
        affordable = self.decoder.tokens_meet_in_attention_only and bytes_needed <= self.memory_bytes / 2
        return length if affordable else 0

    def _run_prefix(self, hidden: Tensor, calls: LayerCalls, prefix: int) -> list[KeyValue | None]:
        if prefix == 0:
            return [None] * self.decoder.num_layers
        positions = torch.arange(prefix, device=hidden.device)
        past: list[KeyValue | None] = []
        hidden = hidden[:, :prefix]
        for layer in range(self.decoder.num_layers):
            hidden, kept = self.decoder.run_keeping(layer, hidden, calls, positions)
            past.append(kept)
            self._layer_tokens += hidden.shape[0] * prefix
        return past

    def _check_examples(self) -> None:
        if not self.layout.num_units:
            raise BoschError(
                f"{type(self.decoder.model).__name__} has no unit that can slide: every layer is sliding, linear or "
                "latent already; expected at least one layer of full attention"
            )
        window, sinks = self.full.window, self.full.sinks
        shortest = min(len(example.input_ids) for example in self.examples)
        longest = max(len(example.input_ids) for example in self.examples)
        if window + sinks >= shortest:
            raise BoschError(
                f"a window of {window} tokens and {sinks} sinks covers examples of {shortest} tokens whole; "
                "expected a window smaller than the examples"
            )
        limit = self.decoder.max_length
        if limit is not None and longest > limit:
            raise BoschError(f"the examples have up to {longest} tokens, but the model takes at most {limit}")
        check_tokens(self.decoder.model, max(max(example.input_ids) for example in self.examples))


def _to_json(results: Mapping[int, Result]) -> dict[str, Any]:
    """Hits and NLLs in the order of the examples."""
    ordered = [results[index] for index in sorted(results)]
    return {
        "hits": "".join("01"[hit] for hit, _ in ordered),
        "nlls": [nll if math.isfinite(nll) else None for _, nll in ordered],
    }


def _from_json(entry: Mapping[str, Any]) -> dict[int, Result]:
    hits = [hit == "1" for hit in entry["hits"]]
    nlls = [math.nan if nll is None else float(nll) for nll in entry["nlls"]]
    examples = map(operator.index, entry.get("examples", range(len(hits))))
    return dict(zip(examples, zip(hits, nlls, strict=True), strict=True))
