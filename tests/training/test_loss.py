"""Losses against their formulas, written out token by token in float64."""

import math

import pytest
import torch
from tiny import tiny_model
from torch import Tensor
from transformers import PreTrainedModel

from bosch.training.loss import distillation_loss, language_modeling_loss
from bosch.training.packing import IGNORED
from families import make_model


def batch(*ignored: tuple[int, int]) -> dict[str, Tensor]:
    """Two rows of 11 tokens; of the given places nothing is learned."""
    ids = torch.randint(1, 97, (2, 11), generator=torch.Generator().manual_seed(5))
    labels = ids.clone()
    for row, place in ignored:
        labels[row, place] = IGNORED
    return {"input_ids": ids, "labels": labels}


def other_model() -> PreTrainedModel:
    return make_model("llama", torch.float64, seed=3, initializer_range=0.1, num_hidden_layers=2)


def divergence(teacher: PreTrainedModel, student: PreTrainedModel, inputs: dict[str, Tensor]) -> float:
    """Mean over the targets of the sum over the vocabulary of p log(p / q)."""
    with torch.no_grad():
        p, q = (model(inputs["input_ids"], use_cache=False).logits.softmax(-1).tolist() for model in (teacher, student))
    sums = [
        math.fsum(a * math.log(a / b) for a, b in zip(p[row][place - 1], q[row][place - 1], strict=True))
        for row in range(2)
        for place in range(1, 11)
        if inputs["labels"][row, place] != IGNORED
    ]
    return math.fsum(sums) / len(sums)


ANSWERS = [(0, place) for place in range(8)] + [(1, place) for place in (*range(4), 9)]


@pytest.mark.parametrize("ignored", [[], ANSWERS], ids=["all", "answers"])
def test_distillation_is_the_divergence_of_the_targets(ignored: list[tuple[int, int]]) -> None:
    teacher, student, inputs = other_model(), tiny_model(), batch(*ignored)
    loss = distillation_loss(teacher)(student, inputs)
    assert float(loss.detach()) == pytest.approx(divergence(teacher, student, inputs), abs=1e-12)
    assert float(loss.detach()) > 0.01
    loss.backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    with torch.no_grad():
        same = distillation_loss(student)(student, inputs)
    assert float(same) == pytest.approx(0, abs=1e-12)


def test_a_step_along_the_gradient_of_the_distillation_is_as_long_as_it_says() -> None:
    teacher, student, inputs = other_model(), tiny_model(), batch(*ANSWERS)
    loss = distillation_loss(teacher)(student, inputs)
    loss.backward()
    weight, step = student.lm_head.weight, 1e-6
    squared = float(weight.grad.square().sum())
    with torch.no_grad():
        weight -= step * weight.grad
    assert (float(loss.detach()) - divergence(teacher, student, inputs)) / step == pytest.approx(squared, rel=1e-3)


@pytest.mark.parametrize("ignored", [[], ANSWERS], ids=["all", "answers"])
def test_the_loss_is_the_mean_over_the_targets(ignored: list[tuple[int, int]]) -> None:
    model, inputs = tiny_model(), batch(*ignored)
    with torch.no_grad():
        loss = language_modeling_loss(model, inputs)
        p = model(inputs["input_ids"], use_cache=False).logits.softmax(-1)
    ids, labels = inputs["input_ids"], inputs["labels"]
    places = [(row, place) for row in range(2) for place in range(1, 11) if labels[row, place] != IGNORED]
    expected = [-math.log(p[row, place - 1, ids[row, place]]) for row, place in places]
    assert float(loss) == pytest.approx(math.fsum(expected) / len(expected), abs=1e-6)


@pytest.mark.parametrize("loss", [language_modeling_loss, distillation_loss(other_model())])
def test_a_batch_without_targets_has_the_loss_0_and_gradients_of_0(loss) -> None:
    """Other processes wait for them; a mean over nothing would be no number."""
    model = tiny_model()
    value = loss(model, batch(*((row, place) for row in range(2) for place in range(1, 11))))
    value.backward()
    assert float(value.detach()) == 0
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())
