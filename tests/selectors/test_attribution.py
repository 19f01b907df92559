"""Attribution against finite differences of the gated loss, and against dense attention written out here."""

import dataclasses
import itertools
import random

import pytest
import torch
from torch import Tensor
from toy import ignore, left_alone
from transformers import AttentionInterface

from bosch.attention.interface import AttentionState, hybrid_attention
from bosch.calibration import Example, ExampleSet, make_examples
from bosch.decoder import Decoder
from bosch.heads import quota
from bosch.models import load_model
from bosch.probing import Subject
from bosch.scoring.evaluator import Evaluator
from bosch.scoring.objective import Objective
from bosch.selectors import Problem, random_mask
from bosch.selectors.static.attribution import Attribution, answer_nlls, attributions, gate_gradients
from families import FAMILIES, make_model
from marks import slow_after
from reference import native_window, visible
from tiny_checkpoint import TINY

WINDOW, SINKS = 5, 2


def examples(*lengths: int, seed: int = 0) -> tuple[Example, ...]:
    """Random tokens, answers of different lengths."""
    rng = random.Random(seed)
    return tuple(
        Example(tuple(rng.choices(range(1, 97), k=length)), length - 2 - row, 3, "niah", 31, 0.5, "prompt", "answer")
        for row, length in enumerate(lengths)
    )


def gates_of(decoder: Decoder) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(decoder.layout.num_units, generator=generator, dtype=torch.float64)


def dense_nll(model, example: Example, gates: list[Tensor]) -> float:
    """Mean answer NLL by the stock model with dense attention, over one unpadded prompt; the gates of each layer."""
    tokens = torch.tensor([example.input_ids])
    real = torch.ones_like(tokens, dtype=torch.bool)

    def attend(module, query, key, value, _, scaling, **__):
        native, gate = native_window(model, module.layer_idx), gates[module.layer_idx]
        heads = query.shape[1] // key.shape[1]
        weights = (query @ key.repeat_interleave(heads, 1).mT * scaling).exp()
        outputs = []
        for seen in (visible(real, native, 0), visible(real, WINDOW, SINKS)):
            shown = weights * seen
            outputs.append(shown / shown.sum(-1, keepdim=True) @ value.repeat_interleave(heads, 1))
        share = gate.repeat_interleave(heads)[:, None, None] if len(gate) else 1
        return (share * outputs[0] + (1 - share) * outputs[1]).transpose(1, 2), None

    AttentionInterface.register("dense_gates", attend)
    before = model.config._attn_implementation
    model.set_attn_implementation("dense_gates")
    try:
        with torch.no_grad():
            logits = model(input_ids=tokens, use_cache=False).logits[0].double()
    finally:
        model.set_attn_implementation(before)
    start = example.answer_start
    return -logits.log_softmax(-1)[range(start - 1, tokens.shape[1] - 1), tokens[0, start:]].mean().item()


def keep_float64(model) -> None:
    """Let the norms that go through float32, whatever the dtype, compute in the dtype of what they are given."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            is_gemma = type(module).__name__.startswith("Gemma")
            weight = 1 + module.weight if is_gemma else module.weight
            epsilon = module.eps if is_gemma else module.variance_epsilon

            def norm(hidden: Tensor, weight=weight, epsilon=epsilon) -> Tensor:
                return weight * hidden / (hidden.square().mean(-1, keepdim=True) + epsilon).sqrt()

            module.forward = norm


@pytest.mark.parametrize("family", slow_after(1, ["llama", "gpt_neox", "qwen3", "gemma3"]))
def test_gradient_equals_finite_differences_of_dense_attention(family):
    """With sinks, prompts of different lengths in one padded batch, and in the last family layers that slide by
    themselves and have no gate."""
    model = make_model(family, dtype=torch.float64)
    keep_float64(model)
    decoder, prompts = Decoder(model), examples(31, 29, 30)
    layout, gates = decoder.layout, gates_of(decoder)

    def loss(at: Tensor) -> float:
        parts = list(at.split(layout.units_per_layer))
        return sum(dense_nll(model, prompt, parts) for prompt in prompts) / len(prompts)

    found = gate_gradients(decoder, prompts, gates, window=WINDOW, sinks=SINKS)
    assert found.nll == pytest.approx(loss(gates), abs=1e-9)
    step = 1e-5
    rises = [loss(gates + row) - loss(gates - row) for row in step * torch.eye(len(gates), dtype=torch.float64)]
    expected = torch.tensor(rises, dtype=torch.float64) / (2 * step)
    assert expected.abs().min() > 1e-4
    torch.testing.assert_close(found.gradient, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_equals_finite_differences_in_every_family(family):
    """Experts, soft caps, learned sinks: along the gradient, in float32; no token changes experts here."""
    decoder, prompts = Decoder(make_model(family)), examples(29, 27, seed=1)

    def found(gates: Tensor):
        return gate_gradients(decoder, prompts, gates, window=WINDOW, sinks=SINKS)

    gates = torch.full((decoder.layout.num_units,), 0.6)
    gradient = found(gates).gradient
    assert gradient.abs().min() > 0
    step = 0.003 * gradient / gradient.norm()
    rise = (found(gates + step).nll - found(gates - step).nll) / 0.006
    assert rise == pytest.approx(gradient.norm().item(), rel=0.02)


def test_batches_change_nothing():
    decoder, prompts = Decoder(make_model("gpt_neox", dtype=torch.float64)), examples(31, 12, 29, 30, 17)
    gates = gates_of(decoder)
    together, apart, by_two = (
        gate_gradients(decoder, prompts, gates, window=WINDOW, sinks=SINKS, batch_tokens=tokens)
        for tokens in (1000, 1, 64)
    )
    assert together.nlls == pytest.approx(apart.nlls, abs=1e-12)
    torch.testing.assert_close(together.gradient, apart.gradient, rtol=0, atol=1e-12)
    torch.testing.assert_close(together.gradient, by_two.gradient, rtol=0, atol=1e-12)
    alone = [gate_gradients(decoder, [prompt], gates, window=WINDOW, sinks=SINKS) for prompt in prompts]
    assert together.nlls == pytest.approx([one.nll for one in alone], abs=1e-12)


def test_attributions_add_up_to_what_all_sliding_loses():
    """The fundamental theorem of calculus, by 24 midpoints."""
    model = make_model("gpt_neox", dtype=torch.float64)
    prompts = examples(29, 23)
    subject = Subject(Decoder(model), ExampleSet(prompts), WINDOW, SINKS)
    found = attributions(subject, [(number + 0.5) / 24 for number in range(24)]).sum().item()
    ends = [
        gate_gradients(subject.decoder, prompts, torch.full((18,), gate), window=WINDOW, sinks=SINKS).nll
        for gate in (0.0, 1.0)
    ]
    assert abs(ends[0] - ends[1]) > 0.1
    assert found == pytest.approx(ends[0] - ends[1], rel=0.02)


def test_only_states_between_layers_are_kept_for_the_way_back():
    """Per layer one hidden state; of the last layer and the head, which are not run again, one graph."""
    kept: dict[int, int] = {}
    prompts = examples(29)
    for layers in (3, 7):
        decoder, sizes = Decoder(make_model("llama", num_hidden_layers=layers)), dict[int, int]()
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, sizes=sizes: sizes.update({tensor.data_ptr(): tensor.numel()}) or tensor, lambda t: t
        )
        states = [AttentionState(gates=torch.full((2,), 0.5, requires_grad=True), window=WINDOW)] * layers
        with hybrid_attention(decoder.model), hooks:
            answer_nlls(decoder, prompts, states)
        kept[layers] = sum(sizes.values())
    assert kept[7] - kept[3] <= 4 * (29 * 48 + 2)


def test_the_model_is_left_as_it_was():
    model = make_model("qwen3_moe")
    with left_alone(model):
        attributions(Subject(Decoder(model), ExampleSet(examples(29)), WINDOW), [0.5])


def test_gradients_of_narrow_models_are_wide():
    decoder = Decoder(make_model("llama", dtype=torch.bfloat16))
    found = gate_gradients(decoder, examples(29), torch.full((6,), 0.5), window=WINDOW)
    assert found.gradient.dtype == torch.float32
    assert found.gradient.abs().min() > 0


@pytest.fixture(scope="module")
def tiny() -> Subject:
    """The trained model, and examples that it answers."""
    model, tokenizer = load_model(str(TINY), dtype="float32", device="cpu")
    tasks = ("niah_single_1", "niah_single_2")
    found = make_examples(tokenizer, tasks=tasks, lengths=(128, 192), num_examples=8, seed=5)
    return Subject(Decoder(model), found, window=8, tokenizer=tokenizer)


def test_one_ranking_serves_every_ratio_and_keeps_what_random_masks_lose(tiny):
    advanced: list[None] = []
    subject = dataclasses.replace(tiny, advance=lambda: advanced.append(None))
    problem = Problem(Objective(Evaluator(subject.decoder, subject.examples, window=8), "nll"), subject)
    found = Attribution().measure(problem, ignore)
    assert len(advanced) == 8
    assert (found.cost.evaluations, found.cost.full_passes) == (0, 4)
    known = dataclasses.replace(problem, measured={"attribution": found})
    masks = [
        Attribution().select(known, ratio, budget=1, seed=0, on_stage=ignore).mask for ratio in (0.1, 0.5, 0.75, 1)
    ]
    assert [mask.num_localized for mask in masks] == [quota(ratio, 24) for ratio in (0.1, 0.5, 0.75, 1)]
    assert all(less.localized < more.localized for less, more in itertools.pairwise(masks))
    heldout = make_examples(
        tiny.tokenizer,
        tasks=("niah_single_1", "niah_single_2"),
        lengths=(128, 192),
        num_examples=12,
        seed=5,
        split="heldout",
    )
    judge = Evaluator(tiny.decoder, heldout, window=8)
    randoms = [judge.score(random_mask(judge.full, 0.75, seed)).accuracy for seed in range(4)]
    assert judge.score(masks[2]).accuracy > max(randoms) + 0.2
