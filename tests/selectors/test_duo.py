"""Duo on models whose need for long range is known: by construction, or by the NLL of each unit."""

import dataclasses
import itertools
import random
from statistics import fmean, median

import pytest
import torch
from torch import Tensor
from toy import ToyScorer, ignore, left_alone
from transformers import AttentionInterface

from bosch.attention.interface import hybrid_attention
from bosch.calibration import Example, ExampleSet, make_examples
from bosch.cli import main
from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask, quota
from bosch.models import load_model
from bosch.probing import Subject
from bosch.scoring.evaluator import Evaluator
from bosch.scoring.objective import Objective
from bosch.selectors import Problem, random_mask
from bosch.selectors.static.duo import Duo, distance, make_prompts, pace, train_gates
from bosch.selectors.static.nll import Nll
from bosch.selectors.static.passkeys import PasskeyPrompt
from families import FAMILIES, make_model
from reference import visible
from small_search import OPTIONS
from tiny_checkpoint import TINY

WINDOW, SINKS, TOKENS = 5, 2, 29
NEEDLE = Example(tuple(range(1, 1 + TOKENS)), 23, 3, "niah", 31, 0.5, "prompt", "answer")


def subject_of(model, **changes) -> Subject:
    return dataclasses.replace(Subject(Decoder(model), ExampleSet((NEEDLE,)), WINDOW, SINKS), **changes)


def prompts(count: int, seed: int = 0) -> list[PasskeyPrompt]:
    rng = random.Random(seed)
    return [PasskeyPrompt(tuple(rng.choices(range(1, 97), k=TOKENS)), (17, 23, 24)) for _ in range(count)]


@torch.no_grad()
def distance_of(subject: Subject, gates: Tensor, prompt: PasskeyPrompt) -> float:
    with hybrid_attention(subject.decoder.model):
        return distance(subject, gates, prompt).item()


def gradient_of(subject: Subject, gates: Tensor, prompt: PasskeyPrompt) -> Tensor:
    with hybrid_attention(subject.decoder.model):
        (gradient,) = torch.autograd.grad(distance(subject, gates.requires_grad_(), prompt), gates)
    return gradient


def rise_along(subject: Subject, gates: Tensor, step: Tensor, prompt: PasskeyPrompt) -> float:
    """Central difference of the distance, divided by the length of the step."""
    rise = distance_of(subject, gates + step, prompt) - distance_of(subject, gates - step, prompt)
    return rise / (2 * step.norm().item())


def dense_states(model, prompt: PasskeyPrompt, gates: Tensor) -> Tensor:
    """Final hidden states where passkeys are predicted, by the stock model with dense attention, gates (L, G)."""
    real = torch.ones(1, TOKENS, dtype=torch.bool)
    full, sliding = visible(real, None, 0), visible(real, WINDOW, SINKS)

    def attend(module, query, key, value, _, scaling, **__):
        heads = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(heads, 1), value.repeat_interleave(heads, 1)
        weights = (query @ key.mT * scaling).exp()
        outputs = [weights * seen / (weights * seen).sum(-1, keepdim=True) @ value for seen in (full, sliding)]
        gate = gates[module.layer_idx].repeat_interleave(heads)[:, None, None]
        return (gate * outputs[0] + (1 - gate) * outputs[1]).transpose(1, 2), None

    AttentionInterface.register("dense_gates", attend)
    before = model.config._attn_implementation
    model.set_attn_implementation("dense_gates")
    try:
        with torch.no_grad():
            hidden = model.model(input_ids=torch.tensor([prompt.input_ids]), use_cache=False).last_hidden_state
        return hidden[0, list(prompt.predicting)]
    finally:
        model.set_attn_implementation(before)


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_moe"])
def test_distance_of_a_mixture_equals_dense_attention(family):
    """Llama's norms are taken in float32 whatever the dtype, hence the tolerance."""
    model = make_model(family, dtype=torch.float64)
    subject = subject_of(model)
    gates = torch.rand(3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (prompt,) = prompts(1)
    expected = dense_states(model, prompt, gates) - dense_states(model, prompt, torch.ones_like(gates))
    assert expected.square().mean() > 1e-3
    assert distance_of(subject, gates.flatten(), prompt) == pytest.approx(expected.square().mean().item(), rel=1e-5)


def test_gradient_equals_finite_differences_unit_by_unit():
    """In float64 throughout: this family's norms keep it."""
    subject = subject_of(make_model("gpt_neox", dtype=torch.float64))
    gates = torch.rand(18, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (prompt,) = prompts(1)
    gradient = gradient_of(subject, gates, prompt)
    for unit, step in enumerate(1e-5 * torch.eye(18, dtype=torch.float64)):
        assert gradient[unit] == pytest.approx(rise_along(subject, gates, step, prompt), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_equals_finite_differences_in_every_family(family):
    """Experts, soft caps, learned sinks, and layers that have no gate: along the gradient, in float32."""
    subject = subject_of(make_model(family))
    gates = torch.full((subject.decoder.layout.num_units,), 0.6)
    _, prompt = prompts(2)  # around these gates no token of it changes its experts
    gradient = gradient_of(subject, gates, prompt)
    assert gradient.abs().min() > 0
    step = 0.003 * gradient / gradient.norm()
    assert rise_along(subject, gates, step, prompt) == pytest.approx(gradient.norm().item(), rel=0.02)


def test_only_states_between_layers_are_kept_for_the_way_back():
    """Outside the layers, which are run again, a backward pass keeps what the final norm needs: O(T * hidden size)."""
    subject, kept = subject_of(make_model("llama", num_hidden_layers=5)), []
    gates = torch.full((10,), 0.5, requires_grad=True)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda t: t)
    with hybrid_attention(subject.decoder.model), hooks:
        distance(subject, gates, prompts(1)[0])
    assert 0 < sum(kept) < 10 * TOKENS * 48


def test_the_first_step_closes_every_gate_alike():
    """Open gates are at no distance: all that pulls is the mean gate, and Adam's first step is the learning rate."""
    gates = train_gates(subject_of(make_model("llama")), prompts(1))
    torch.testing.assert_close(gates, torch.full((6,), 0.98), rtol=0, atol=1e-6)


def test_pace_by_hand():
    assert [pace(step, 10) for step in range(10)] == [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 0.5]
    assert [pace(step, 20) for step in (0, 1, 2, 3, 4, 15, 16, 17, 18, 19)] == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    )
    assert Duo().learning_rate * sum(pace(step, Duo().steps) for step in range(Duo().steps)) > 1


def test_the_one_unit_that_needs_its_long_range_stays_open():
    """All other units have the same value at every position: they speak, but it does not matter where they look."""
    model = make_model("llama")
    with torch.no_grad():
        for layer in range(3):
            values = model.model.layers[layer].self_attn.v_proj.weight.view(2, 8, 48)
            values[[head for head in range(2) if (layer, head) != (1, 0)]] = 0
        model.model.layers[1].self_attn.v_proj.weight.mul_(3)
        model.model.layers[1].self_attn.q_proj.weight.mul_(5)  # looks at few positions, wherever they are
    gates = train_gates(subject_of(model), prompts(50)).tolist()
    needed = gates.pop(2)
    assert needed > 0.7
    assert max(gates) < 0.3
    assert min(gates) >= 0


def test_the_model_is_left_as_it_was():
    model = make_model("qwen3_moe")
    with left_alone(model):
        train_gates(subject_of(model), prompts(2))


def test_gates_of_narrow_models_are_wide():
    """In bfloat16 steps of 0.02 times a warm-up of 0.05 would be lost next to 1."""
    gates = train_gates(subject_of(make_model("llama", dtype=torch.bfloat16)), prompts(1))
    assert gates.dtype == torch.float32


@pytest.fixture(scope="module")
def tiny() -> Subject:
    """The trained model, and examples that it answers."""
    model, tokenizer = load_model(str(TINY), dtype="float32", device="cpu")
    tasks = ("niah_single_1", "niah_single_2")
    examples = make_examples(tokenizer, tasks=tasks, lengths=(128, 160), num_examples=4, seed=5)
    return Subject(Decoder(model), examples, window=8, tokenizer=tokenizer)


def problem_of(subject: Subject) -> Problem:
    return Problem(Objective(Evaluator(subject.decoder, subject.examples, window=8), "nll"), subject)


def test_prompts_are_fresh_and_of_the_examples_lengths(tiny):
    made = make_prompts(tiny, 8)
    assert make_prompts(tiny, 8) == made
    assert len({prompt.input_ids for prompt in made}) == 8
    other = make_prompts(dataclasses.replace(tiny, seed=1), 8)
    assert not {prompt.input_ids for prompt in made} & {prompt.input_ids for prompt in other}
    for step, prompt in enumerate(made):
        length = tiny.examples[step % 4].length
        assert length - 20 < len(prompt.input_ids) <= length


def test_the_same_seed_gives_the_same_gates(tiny):
    gates = train_gates(tiny, make_prompts(tiny, 2))
    torch.testing.assert_close(train_gates(tiny, make_prompts(tiny, 2)), gates, rtol=0, atol=0)
    other = train_gates(tiny, make_prompts(dataclasses.replace(tiny, seed=1), 2))
    assert not torch.equal(other, gates)


def test_units_whose_sliding_hurts_stay_open(tiny):
    """The six units of 24 that alone raise the answers' NLL most have higher gates than the median, after few steps."""
    local = Nll().measure(problem_of(tiny), ignore).scores
    trained = train_gates(tiny, make_prompts(tiny, 12)).tolist()
    gates = dict(zip(tiny.decoder.layout.units(), trained, strict=True))
    dearest = sorted(local, key=local.get)[:6]
    assert all(gates[unit] > median(gates.values()) + 0.05 for unit in dearest)


def test_the_most_closed_units_slide_and_the_budget_is_exact(tiny):
    advanced = []
    problem = problem_of(dataclasses.replace(tiny, advance=lambda: advanced.append(None)))
    found = Duo(steps=2).measure(problem, ignore)
    assert len(advanced) == 2
    gates = train_gates(tiny, make_prompts(tiny, 2)).view(6, 4).tolist()
    assert found.scores == {(layer, head): -gates[layer][head] for layer in range(6) for head in range(4)}
    known = dataclasses.replace(problem, measured={"duo": found})
    for ratio in (0, 0.1, 0.5, 0.77, 1):
        mask = Duo().select(known, ratio, budget=1, seed=0, on_stage=ignore).mask
        assert mask.num_localized == quota(ratio, 24)
        kept = [gates[layer][head] for layer, head in found.scores if mask[layer, head]]
        closed = [gates[layer][head] for layer, head in mask.localized]
        assert min(kept, default=1) >= max(closed, default=0)


def test_a_step_costs_five_passes_over_its_prompt(tiny):
    """Full model forward; gated one forward, forward again, and a backward pass, which counts twice."""
    cost = Duo(steps=1).measure(problem_of(tiny), ignore).cost
    (prompt,) = make_prompts(tiny, 1)
    full_pass = sum(len(example.input_ids) for example in tiny.examples)
    assert cost.evaluations == 0
    assert cost.full_passes == pytest.approx(5 * len(prompt.input_ids) / full_pass)
    assert cost.seconds > 0


def test_a_subject_without_a_tokenizer_is_refused():
    subject = Subject(Decoder(make_model("llama")), ExampleSet((NEEDLE,)), WINDOW)
    problem = Problem(Objective(ToyScorer(HeadLayout((2, 2, 2)), {}), "nll"), subject)
    with pytest.raises(BoschError, match="expected a subject with the model's tokenizer, got none"):
        Duo().select(problem, 0.5, budget=1, seed=0, on_stage=ignore)


def test_a_search_hands_the_tokenizer_on(model_path, tmp_path):
    options = {**OPTIONS, "model": model_path, "method": "duo", "method-options": "steps=2", "output": tmp_path / "run"}
    assert main(["search", *itertools.chain(*(("--" + name, str(value)) for name, value in options.items()))]) == 0
    assert HeadMask.load(tmp_path / "run" / "mask.json").num_localized == quota(0.5, 9)


@pytest.mark.slow
def test_the_whole_training_keeps_what_random_masks_lose(tiny):
    problem = problem_of(tiny)
    known = dataclasses.replace(problem, measured={"duo": Duo().measure(problem, ignore)})
    tasks = ("niah_single_1", "niah_single_2")
    heldout = make_examples(tiny.tokenizer, tasks=tasks, lengths=(128, 192), num_examples=24, seed=5, split="heldout")
    judge = Evaluator(tiny.decoder, heldout, window=8)
    for ratio in (0.5, 0.75):
        selection = Duo().select(known, ratio, budget=1, seed=0, on_stage=ignore)
        randoms = [judge.score(random_mask(judge.full, ratio, seed)).accuracy for seed in range(10)]
        assert judge.score(selection.mask).accuracy > fmean(randoms) + 0.3
