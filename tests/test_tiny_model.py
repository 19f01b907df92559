"""The trained model in tests/models/tiny: a real thing to find, small enough for every test run."""

from statistics import fmean

import pytest
import torch

from bosch.calibration import make_examples
from bosch.decoder import Decoder
from bosch.models import load_model
from bosch.probing import Subject
from bosch.scoring.evaluator import Evaluator
from bosch.scoring.objective import Objective
from bosch.selectors import METHODS, Problem, random_mask
from bosch.selectors.floating import Floating
from marks import slow_after
from tiny_checkpoint import TINY

WINDOW = 8


@pytest.fixture(scope="module")
def tiny():
    model, tokenizer = load_model(str(TINY), dtype="float32", device="cpu")
    return Decoder(model), tokenizer


def examples(tokenizer, split, number, lengths=(128, 192), tasks=("niah_single_1", "niah_single_2")):
    return make_examples(tokenizer, tasks=tasks, lengths=lengths, num_examples=number, seed=5, split=split)


def test_it_answers_needles_with_full_attention_only(tiny):
    decoder, tokenizer = tiny
    judge = Evaluator(decoder, examples(tokenizer, "heldout", 60), window=WINDOW)
    assert judge.score(judge.full).accuracy >= 0.95
    assert judge.score(judge.sliding).accuracy <= 0.2
    randoms = [judge.score(random_mask(judge.full, 0.5, seed)).accuracy for seed in range(10)]
    assert fmean(randoms) <= 0.7
    reach = decoder.num_layers * (WINDOW - 1)
    assert judge.examples.share_beyond(reach) == 1


@pytest.mark.parametrize("lengths", [(128,), (120, 124, 128)], ids=["even", "padded"])
@pytest.mark.parametrize("number", slow_after(1, [12, 50]))
def test_incremental_evaluation_equals_plain_passes(tiny, lengths, number):
    decoder, tokenizer = tiny
    data = examples(tokenizer, "calibration", 6, lengths)
    evaluator = Evaluator(decoder, data, window=WINDOW)
    for seed in range(number):
        mask = random_mask(evaluator.full, seed % 10 / 10, seed)
        score = evaluator.score(mask)
        for example, hit, nll in zip(data.examples, score.hits, score.nlls, strict=True):
            logits = decoder.forward(torch.tensor([example.input_ids]), mask)[0, example.answer_start - 1 : -1]
            answer = torch.tensor(example.input_ids[example.answer_start :])
            assert hit == bool((logits.argmax(-1) == answer).all())
            assert nll == pytest.approx(float(torch.nn.functional.cross_entropy(logits, answer)), abs=2e-5)
        if seed % 4 == 0:
            evaluator.rebase(mask)


@pytest.mark.parametrize(("method", "budget"), slow_after(1, [("bosch", 20), ("progressive", 4), ("floating", 4)]))
@pytest.mark.parametrize("ratio", slow_after(1, [0.75, 0.5]))
def test_a_search_keeps_what_random_masks_lose(tiny, method, budget, ratio):
    decoder, tokenizer = tiny
    evaluator = Evaluator(decoder, examples(tokenizer, "calibration", 12), window=WINDOW)
    objective = Objective(evaluator, "nll")
    selection = METHODS[method]().select(Problem(objective), ratio, budget=budget, seed=0, on_stage=lambda *_: None)
    judge = Evaluator(decoder, examples(tokenizer, "heldout", 24), window=WINDOW)
    randoms = [judge.score(random_mask(judge.full, ratio, seed)).accuracy for seed in range(10)]
    found = judge.score(selection.mask).accuracy
    print(method, ratio, found, sorted(randoms))
    assert found > fmean(randoms) + 0.15
    assert found >= sorted(randoms)[7]


@pytest.mark.parametrize("kind", slow_after(1, ["nll", "accuracy+nll"]))
def test_racing_chooses_what_measuring_everything_chooses(tiny, kind):
    """The first unit to slide: of 24 measurements most are given up, and the best of all is found."""
    decoder, tokenizer = tiny
    data = examples(tokenizer, "calibration", 12)
    raced, whole = (Evaluator(decoder, data, window=WINDOW, batch_tokens=400) for _ in range(2))
    selection = Floating(tolerance=-1.0).select(  # no layer slides whole
        Problem(Objective(raced, kind)), 1 / 24, budget=1, seed=0, on_stage=lambda *_: None
    )
    objective = Objective(whole, kind)
    units = list(decoder.layout.units())
    assert selection.mask.localized == {max(units, key=lambda unit: objective(whole.full.localize([unit])))}
    singles = [whole.full.localize([unit]) for unit in units]
    assert sum(not raced.is_known(mask) for mask in singles) >= 6
    assert raced.cost(singles).full_passes < whole.cost(singles).full_passes


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.5, 0.75])
def test_the_three_stages_beat_layer_patterns_and_are_no_worse_than_static_methods(tiny, ratio):
    decoder, tokenizer = tiny
    evaluator = Evaluator(decoder, examples(tokenizer, "calibration", 24), window=WINDOW)
    judge = Evaluator(decoder, examples(tokenizer, "heldout", 96), window=WINDOW)
    problem = Problem(Objective(evaluator, "nll"), Subject(decoder, evaluator.examples, WINDOW))

    def accuracy(method: str, seed: int = 0) -> float:
        selection = METHODS[method]().select(problem, ratio, budget=20, seed=seed, on_stage=lambda *_: None)
        return judge.score(selection.mask).accuracy

    found = accuracy("bosch")
    layers = [accuracy("bme"), accuracy("intr"), fmean(accuracy("random-layers", seed) for seed in range(3))]
    static = {method: accuracy(method) for method in ("dcam", "apl", "proxy", "qada", "razor", "fisher")}
    print(ratio, found, layers, static)
    assert found > max(layers)
    assert found >= max(static.values())
