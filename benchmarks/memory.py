"""Peak memory of a search against its budget: `python benchmarks/memory.py [--length 2048] [--memory-gib 1]`.

The budget is for what is kept between evaluations (hidden states at layer boundaries, keys and values of the prefix).
Beside it there are the model itself and the workspace of one batch, which is what a plain pass needs as well: the
second line measures that alone, the last one the search's evaluator after it has filled its budget.
"""

import argparse
import resource

from bosch.calibration import ExampleSet, make_examples
from bosch.decoder import Decoder
from bosch.models import load_model
from bosch.scoring.evaluator import Evaluator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--examples", type=int, default=16)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--memory-gib", type=float, default=1.0)
    options = parser.parse_args()
    model, tokenizer = load_model(options.model)
    decoder = Decoder(model)

    def needles(number: int) -> ExampleSet:
        return make_examples(tokenizer, tasks=["niah_single_1"], lengths=[options.length], num_examples=number, seed=0)

    print(f"{options.model}, {options.examples} examples of {options.length} tokens, budget {options.memory_gib} GiB")
    print(f"model loaded: peak {peak_gib():.2f} GiB")
    frugal = Evaluator(decoder, needles(2), window=options.window, memory_bytes=1)
    frugal.score(frugal.full)
    before = peak_gib()
    print(f"one batch, nothing kept but its embeddings: peak {before:.2f} GiB")
    memory_bytes = int(options.memory_gib * 2**30)
    evaluator = Evaluator(decoder, needles(options.examples), window=options.window, memory_bytes=memory_bytes)
    top = decoder.layout.eligible_layers[-1]
    for mask in (evaluator.full, evaluator.full.localize([(top, 0)]), evaluator.full.localize([(top // 2, 0)])):
        evaluator.score(mask)
    batches = evaluator._batches.values()
    kept = sum(states.nbytes for part in batches for states in part.boundaries.values())
    kept += sum(past.key.nbytes + past.value.nbytes for part in batches for past in part.past if past)
    print(f"evaluator: keeps {kept / 2**30:.2f} GiB, boundaries at every {evaluator._stride} layers")
    print(f"           peak {peak_gib():.2f} GiB, {peak_gib() - before:.2f} above the single batch")


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
