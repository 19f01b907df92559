"""Attribution: what each unit's full attention is worth, from a few gradients, however many units there are.

Let g in [0, 1]^N be gates: unit u gives g_u * full attention + (1 - g_u) * sliding attention, and let F(g) be the mean
answer NLL. Along the straight line from all sliding, g = 0, to all full, g = 1, the attributions

    a_u = - integral over q from 0 to 1 of dF/dg_u at g = (q, ..., q)

add up to F(0) - F(1): integrated gradients (Sundararajan et al., 2017, arXiv 1703.01365, Eq. 1), in cost sharing the
Aumann-Shapley values. The integral is taken at a few points; one, halfway, is the midpoint rule. The gradient of the
original model itself (attribution patching) would say little: its answers are certain, and the loss is flat there.

One gradient is a forward pass, the same again layer by layer, and a backward pass in the hidden states alone: nothing
of the model is differentiated, and below the lowest layer with units nothing at all. Memory: the hidden states between
the layers, and one layer's graph.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bosch.attention.interface import AttentionState, hybrid_attention
from bosch.calibration import Example
from bosch.common.options import check_integer
from bosch.decoder import Decoder
from bosch.probing import Subject
from bosch.scoring.batches import answer_tokens, group_by_length, padded_tokens, score_tokens
from bosch.scoring.evaluator import default_batch_tokens
from bosch.scoring.objective import Cost
from bosch.selectors.method import Measured, Problem, StageListener
from bosch.selectors.static.ranking import BACKWARD_PASSES, Ranking


@dataclasses.dataclass(frozen=True)
class Attribution(Ranking):
    """Minus what a unit's full attention is worth.

    Args:
        points: gradients along the line, by the midpoint rule; each costs as much as all others.
    """

    name = "attribution"
    summary = "Integrated gradients of the answers' loss in all units' gates, between all sliding and all full."

    points: int = 1

    def __post_init__(self) -> None:
        check_integer("points", self.points, 1)

    def measure(self, problem: Problem, on_stage: StageListener) -> Measured:
        """One gradient a point, whatever the number of units; arguments as in `Ranking`."""
        assert problem.subject, "static methods look inside the model"
        started = time.monotonic()
        on_stage("attributing the answers to KV heads", self.points * len(problem.subject.examples))
        points = [(number + 0.5) / self.points for number in range(self.points)]
        found = attributions(problem.subject, points)
        scores = dict(zip(problem.layout.units(), (-found).tolist(), strict=True))
        return Measured(scores, Cost(0, self.points * BACKWARD_PASSES, time.monotonic() - started))


def attributions(subject: Subject, points: Sequence[float]) -> Tensor:
    """What each unit's full attention takes off the mean answer NLL, in nats a token.

    Args:
        subject: the model, its examples, the window and the sinks.
        points: in [0, 1], where on the line from all sliding (0) to all full (1) a gradient is taken.

    Returns:
        (N,) float32 or float64, bottom layer first; negative for a unit that harms.
    """
    decoder, examples = subject.decoder, tuple(subject.examples)
    gradients = []
    for point in points:
        gates = torch.full((decoder.layout.num_units,), float(point))
        found = gate_gradients(decoder, examples, gates, window=subject.window, sinks=subject.sinks)
        gradients.append(found.gradient)
        for _ in examples:
            subject.advance()
    return -torch.stack(gradients).mean(0)


@dataclasses.dataclass(frozen=True)
class GateGradient:
    """The loss at some gates, and its gradient.

    Args:
        nlls: for each example, the mean NLL of its answer tokens, in nats.
        gradient: (N,) float32 or float64, of the mean of the NLLs with respect to the gates, bottom layer first.
    """

    nlls: tuple[float, ...]
    gradient: Tensor

    @property
    def nll(self) -> float:
        """Mean answer NLL in nats a token."""
        return fmean(self.nlls)


def gate_gradients(
    decoder: Decoder,
    examples: Sequence[Example],
    gates: Tensor,
    *,
    window: int,
    sinks: int = 0,
    batch_tokens: int | None = None,
) -> GateGradient:
    """The answer NLL of a gated model and its gradient in the gates. The model is left as it was.

    Args:
        decoder: the model.
        examples: prompts with their answers.
        gates: (N,), of all units, bottom layer first: 1 full, 0 sliding.
        window: W of sliding attention, in tokens.
        sinks: S, first tokens that sliding attention sees as well.
        batch_tokens: largest number of tokens in a batch, padding included, one example at least; by default what
            suits the device.
    """
    limit = batch_tokens or default_batch_tokens(decoder)
    dtype = torch.promote_types(decoder.model.dtype, torch.float32)
    gates = gates.to(decoder.device, dtype).detach().requires_grad_()
    nlls: dict[int, float] = {}
    gradient = torch.zeros_like(gates, requires_grad=False)
    with hybrid_attention(decoder.model), _frozen(decoder.model), torch.enable_grad():
        states = decoder.gated_states(gates, window=window, sinks=sinks)
        for group in group_by_length(examples, limit):
            losses = answer_nlls(decoder, [examples[index] for index in group], states)
            gradient += torch.autograd.grad(losses.sum(), gates)[0]
            nlls |= zip(group, losses.tolist(), strict=True)
    return GateGradient(tuple(nlls[index] for index in range(len(examples))), gradient / len(examples))


def answer_nlls(decoder: Decoder, examples: Sequence[Example], states: Sequence[AttentionState]) -> Tensor:
    """Each example's mean answer NLL, to be differentiated inside `hybrid_attention`.

    Args:
        decoder: the model.
        examples: one batch, padded on the right.
        states: what each layer's attention does.

    Returns:
        (B,) float32 or float64.
    """
    predicting, answers, real = (tensor.to(decoder.device) for tensor in answer_tokens(examples))
    with torch.no_grad():
        hidden, calls = decoder.open(padded_tokens(examples).to(decoder.device))
    for layer, state in enumerate(states[:-1]):
        hidden = checkpoint(decoder.run, layer, hidden, calls, state, use_reentrant=False, preserve_rng_state=False)
    every = torch.arange(calls.num_tokens, device=decoder.device)
    hidden = decoder.run_last(hidden, calls, states[-1], predicting, every)
    _, token_nlls = score_tokens(decoder.logits(hidden[real], calls), answers[real])
    return torch.stack([part.mean() for part in token_nlls.split(real.sum(1).tolist())])


@contextlib.contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Without a gradient for any weight, so that the graph of a layer keeps nothing for one."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
