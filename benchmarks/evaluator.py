"""What exact incremental evaluation saves, in one run: `python benchmarks/evaluator.py [--model smollm2-135m]`.

1. Stage 1: one mask a layer, from the top down, each on top of those above. Incremental time against plain full passes
   of the same masks, timed in turn so that a busy machine slows both alike.
2. A whole search against the same search with a plain full pass for every evaluation: both are really run.
3. The hybrid attention forward against full attention at T = 4096, W = 256 (benchmarks/attention.py).

The bound of 1 is counted in layer-tokens: a plain pass runs L layers over T tokens; an evaluation that changes layer l
runs the layers from l on over T - W tokens, and the last one only where answers are predicted.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

import attention
from bosch.calibration import ExampleSet, make_examples
from bosch.decoder import Decoder
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.scoring.evaluator import Evaluator, Result
from bosch.scoring.objective import Objective
from bosch.selectors import METHODS, Problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--examples", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--search-length", type=int, default=256)
    parser.add_argument("--search-examples", type=int, default=2)
    options = parser.parse_args()
    model, tokenizer = load_model(options.model)
    decoder = Decoder(model)

    def examples(length: int, number: int) -> ExampleSet:
        return make_examples(tokenizer, tasks=["niah_single_1"], lengths=[length], num_examples=number, seed=0)

    print(f"{options.model}, torch {torch.__version__}, {torch.get_num_threads()} threads, {model.dtype}")
    stage_1(decoder, examples(options.length, options.examples), options.window)
    whole_search(decoder, examples(options.search_length, options.search_examples), options.window)
    del model, decoder
    sys.argv[1:] = []
    with torch.inference_mode():
        attention.main()


class PlainScorer(Evaluator):
    """Every mask by a plain pass of the whole model; the head sees the predicting positions only."""

    def _run(self, number: int, mask: HeadMask) -> list[Result]:
        found = []
        for index in self._groups[number]:
            example = self.examples[index]
            ids = torch.tensor([example.input_ids])
            with torch.no_grad(), self.decoder.hybrid(mask):
                kept = len(example.input_ids) - example.answer_start + 1
                logits = self.decoder.model(ids, use_cache=False, logits_to_keep=kept).logits[0, :-1].float()
            answer = ids[0, example.answer_start :]
            hit = bool((logits.argmax(-1) == answer).all())
            found.append((hit, float(torch.nn.functional.cross_entropy(logits, answer))))
            self._layer_tokens += self.decoder.num_layers * len(example.input_ids)
        return found


def stage_1(decoder: Decoder, examples: ExampleSet, window: int) -> None:
    """Time of each layer's evaluation, incremental and plain."""
    incremental = Evaluator(decoder, examples, window=window)
    plain = PlainScorer(decoder, examples, window=window)
    incremental.score(incremental.full)
    before = incremental._layer_tokens
    mask, own, full, differences = incremental.full, [], [], []
    for layer in reversed(decoder.layout.eligible_layers):
        mask = mask.localize([(layer, 0)])
        seconds, score = timed(lambda mask=mask: incremental.score(mask))
        own.append(seconds)
        seconds, expected = timed(lambda mask=mask: plain.score(mask))
        full.append(seconds)
        differences.append(max(abs(a - b) for a, b in zip(score.nlls, expected.nlls, strict=True)))
        incremental.rebase(mask)
    bound = len(own) * incremental.full_pass_layer_tokens / (incremental._layer_tokens - before)
    print(
        f"stage 1, {len(own)} layers, {len(examples)} examples: incremental {sum(own):.1f} s, plain {sum(full):.1f} s"
    )
    print(f"  speed-up {sum(full) / sum(own):.2f}x; bound by layer-tokens {bound:.2f}x")
    print(f"  largest NLL difference {max(differences):.1e}; plain pass median {statistics.median(full):.2f} s")


def whole_search(decoder: Decoder, examples: ExampleSet, window: int) -> None:
    """The progressive search at a quarter, with and without incremental evaluation."""
    results = {}
    for name, kind in (("incremental", Evaluator), ("plain", PlainScorer)):
        objective = Objective(kind(decoder, examples, window=window), "nll")
        seconds, selection = timed(
            lambda objective=objective: METHODS["progressive"]().select(
                Problem(objective), 0.25, budget=1, seed=0, on_stage=lambda *_: None
            )
        )
        results[name] = seconds, selection.mask
        cost = objective.cost()
        print(f"progressive at 0.25, {name}: {seconds:.1f} s, {cost.evaluations} evaluations, "
              f"{cost.full_passes:.1f} full-pass equivalents")  # fmt: skip
    ratio = results["plain"][0] / results["incremental"][0]
    print(f"  speed-up {ratio:.2f}x; same mask: {results['plain'][1] == results['incremental'][1]}")


def timed(run: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
