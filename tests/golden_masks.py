"""The masks of every method at two ratios and two seeds on the tiny model, for `golden_masks.json`.

`python tests/golden_masks.py` writes the file anew, which only a change that is meant to change masks may do;
`test_golden_masks.py` compares.
"""

import json
from pathlib import Path

import torch

from bosch.calibration import make_examples
from bosch.decoder import Decoder
from bosch.models import load_model
from bosch.probing import Subject
from bosch.scoring.evaluator import Evaluator
from bosch.scoring.objective import Objective
from bosch.selectors import METHODS, Problem
from tiny_checkpoint import TINY

FILE = Path(__file__).with_name("golden_masks.json")
RATIOS, SEEDS, WINDOW, BUDGET = (0.5, 0.75), (0, 1), 8, 6


def golden_masks(methods: list[str]) -> dict[str, str]:
    """`method@ratio.seed` -> mask, each found by an evaluator that knew nothing before."""
    torch.set_num_threads(1)
    model, tokenizer = load_model(str(TINY), dtype="float32", device="cpu")
    decoder = Decoder(model)
    masks = {}
    for seed in SEEDS:
        examples = make_examples(
            tokenizer, tasks=["niah_single_1", "niah_single_2"], lengths=[96, 128], num_examples=4, seed=seed
        )
        for method in methods:
            for ratio in RATIOS:
                objective = Objective(Evaluator(decoder, examples, window=WINDOW), "nll")
                subject = Subject(decoder, examples, WINDOW, seed=seed, tokenizer=tokenizer)
                problem = Problem(objective, subject)
                selection = METHODS[method]().select(problem, ratio, budget=BUDGET, seed=seed, on_stage=lambda *_: None)
                masks[f"{method}@{ratio}.{seed}"] = selection.mask.key()
    return masks


if __name__ == "__main__":
    FILE.write_text(json.dumps(golden_masks(list(METHODS)), indent=1) + "\n")
