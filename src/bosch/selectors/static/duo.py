"""Duo (DuoAttention, Xiao et al., 2024, arXiv 2410.10819): a gate for every unit, between full and sliding attention,
is trained to close while the model's last states stay as they are; units whose gates close slide.

The gates begin at 1, open, and minimise the mean squared distance between the final hidden states of the gated and of
the full model, where a prompt's passkeys are predicted, plus 0.05 times the mean gate; by Adam at a learning rate of
0.02 that is warmed up and decayed over a fifth of the steps each. All that is the method's own. Different are:

- a closed gate sees our window and sinks, not 256 recent and 128 first tokens;
- the states compared are those that predict the passkeys' tokens, one position before the tokens themselves;
- the prompts are as long as the calibration examples (`passkeys.py`), one a step, each a fresh one;
- there are 100 steps, not 2,000. A step of Adam moves a gate by about the learning rate at most, by 1.6 in all: that
  still takes any gate from one end to the other.
"""

import dataclasses
import time
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bosch.attention.interface import AttentionState, hybrid_attention
from bosch.common.options import check_integer, check_positive
from bosch.decoder import Decoder, LayerCalls
from bosch.errors import BoschError
from bosch.probing import Subject
from bosch.scoring.objective import Cost
from bosch.selectors.method import Measured, Problem, StageListener
from bosch.selectors.static.passkeys import PasskeyPrompt, make_passkey_prompt
from bosch.selectors.static.ranking import BACKWARD_PASSES, Ranking

STEP_PASSES = 1 + BACKWARD_PASSES
"""Full passes of a step: the full model forward, and the gated one forward, forward again layer by layer, and twice as
much backward. That a gated layer attends twice is not counted."""


@dataclasses.dataclass(frozen=True)
class Duo(Ranking):
    """Minus the gates that training leaves.

    Args:
        steps: of Adam, a prompt each.
        learning_rate: the largest.
        pull: weight of the mean gate in the loss.
    """

    name = "duo"
    summary = (
        "DuoAttention: a gate for every KV head is trained to close while the model's last states stay as they are."
    )

    steps: int = 100
    learning_rate: float = 0.02
    pull: float = 0.05

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1)
        check_positive("learning_rate", self.learning_rate)
        check_positive("pull", self.pull)

    def measure(self, problem: Problem, on_stage: StageListener) -> Measured:
        """Train the gates."""
        subject = problem.subject
        assert subject
        started = time.monotonic()
        on_stage("training gates", self.steps)
        prompts = make_prompts(subject, self.steps)
        gates = train_gates(subject, prompts, self.learning_rate, self.pull)
        scores = dict(zip(problem.layout.units(), (-gates).tolist(), strict=True))
        tokens = sum(len(prompt.input_ids) for prompt in prompts)
        full_passes = STEP_PASSES * tokens / sum(len(example.input_ids) for example in subject.examples)
        return Measured(scores, Cost(0, full_passes, time.monotonic() - started))


def make_prompts(subject: Subject, count: int) -> list[PasskeyPrompt]:
    """Different prompts, of the lengths of the calibration examples in turn.

    Raises:
        BoschError: the subject has no tokenizer, or one that prompts cannot be made with.
    """
    if subject.tokenizer is None:
        raise BoschError("duo writes prompts of its own; expected a subject with the model's tokenizer, got none")
    examples = subject.examples
    lengths = [examples[step % len(examples)].length for step in range(count)]
    return [
        make_passkey_prompt(subject.tokenizer, length, f"duo/{subject.seed}/{step}")
        for step, length in enumerate(lengths)
    ]


def train_gates(
    subject: Subject, prompts: Sequence[PasskeyPrompt], learning_rate: float = 0.02, pull: float = 0.05
) -> Tensor:
    """Train the gates, one step a prompt. Nothing of the model is changed, and no parameter gets a gradient.

    Memory: O(layers * T * hidden size), and one layer's graph.

    Returns:
        (N,) float32 or float64, in [0, 1]: the gates of all units, bottom layer first.
    """
    decoder = subject.decoder
    dtype = torch.promote_types(decoder.model.dtype, torch.float32)
    gates = torch.ones(decoder.layout.num_units, dtype=dtype, device=decoder.device, requires_grad=True)
    adam = torch.optim.Adam([gates], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: pace(step, len(prompts)))
    for prompt in prompts:
        with torch.enable_grad(), hybrid_attention(decoder.model):
            loss = distance(subject, gates, prompt) + pull * gates.abs().mean()
            (gates.grad,) = torch.autograd.grad(loss, gates)
        adam.step()
        schedule.step()
        with torch.no_grad():
            gates.clamp_(0, 1)
        subject.advance()
    return gates.detach()


def pace(step: int, num_steps: int) -> float:
    """The learning rate of a step as a share of the largest: it rises over the first fifth and falls over the last."""
    return min(1, 5 * (step + 1) / num_steps, 5 * (num_steps - step) / num_steps)


def distance(subject: Subject, gates: Tensor, prompt: PasskeyPrompt) -> Tensor:
    """Mean squared distance between the final hidden states of the gated and of the full model, where passkeys are
    predicted; a scalar, to be differentiated inside `hybrid_attention`.

    Args:
        subject: the model, the window and the sinks.
        gates: (N,), bottom layer first.
        prompt: what both are given.
    """
    decoder = subject.decoder
    gated = decoder.gated_states(gates, window=subject.window, sinks=subject.sinks)
    with torch.no_grad():
        hidden, calls = decoder.open(torch.tensor([prompt.input_ids], device=decoder.device))
        expected = final_states(decoder, hidden, calls, [AttentionState()] * decoder.num_layers)
    found = final_states(decoder, hidden, calls, gated)
    difference = (found - expected)[0, list(prompt.predicting)]
    return difference.to(gates.dtype).square().mean()


def final_states(decoder: Decoder, hidden: Tensor, calls: LayerCalls, states: Sequence[AttentionState]) -> Tensor:
    """(B, T, hidden size) after the final norm. Only the states between the layers are kept for a backward pass."""
    for layer, state in enumerate(states):
        hidden = checkpoint(decoder.run, layer, hidden, calls, state, use_reentrant=False)
    for module in decoder.tail:
        hidden = module(hidden)
    return hidden
