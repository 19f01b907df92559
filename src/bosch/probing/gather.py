"""One pass of the full model, shown to any number of statistics."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bosch.attention.interface import AttentionState, Observation, hybrid_attention, observed
from bosch.calibration import Example
from bosch.decoder import Decoder
from bosch.probing.blocks import attention_blocks
from bosch.probing.statistic import Statistic, Subject


@torch.no_grad()
def gather(subject: Subject, sequences: Sequence[Sequence[int]], statistics: Sequence[Statistic]) -> None:
    """Run the full model over each sequence and show every block of attention to every statistic.

    Args:
        subject: the model.
        sequences: token ids.
        statistics: fed in their order; layers that are not eligible are left out.
    """
    decoder = subject.decoder
    layer_of = {id(module): layer for layer in decoder.layout.eligible_layers for module in decoder.attentions[layer]}

    def observe(observation: Observation) -> None:
        layer = layer_of.get(id(observation.module))
        if layer is not None:
            for block in attention_blocks(observation):
                for statistic in statistics:
                    statistic.add(layer, block)

    with hybrid_attention(decoder.model), observed(observe):
        for tokens in sequences:
            decoder.backbone(input_ids=torch.tensor([list(tokens)], device=decoder.device), use_cache=False)
            subject.advance()


def gather_gradients(subject: Subject, statistics: Sequence[Statistic]) -> None:
    """Show the statistics every block of attention with the gradient of each example's answer NLL.

    Nothing but the states between the layers is kept of the forward pass: each layer is run again when the gradient
    reaches it, and its attention once more block by block. Memory: O(layers * T * hidden size) and one layer's graph.

    Args:
        subject: the model and its examples.
        statistics: fed in their order, from the top layer down; layers that are not eligible are left out.
    """
    for example in subject.examples:
        _backward(subject.decoder, example, statistics)
        subject.advance()


def _backward(decoder: Decoder, example: Example, statistics: Sequence[Statistic]) -> None:
    tokens = torch.tensor([example.input_ids], device=decoder.device)
    with torch.no_grad(), hybrid_attention(decoder.model):
        hidden, calls = decoder.open(tokens)
        entering = [hidden]
        for layer in range(decoder.num_layers):
            entering.append(decoder.run(layer, entering[-1], calls, AttentionState()))
    with torch.enable_grad():
        last = entering.pop().requires_grad_()
        logits = decoder.logits(last[0, example.answer_start - 1 : -1], calls)
        answers = tokens[0, example.answer_start :]
        loss = torch.nn.functional.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), answers)
        (gradient,) = torch.autograd.grad(loss, last)
    for layer in reversed(range(decoder.num_layers)):
        observations: list[Observation] = []
        outputs: list[Tensor] = []
        with torch.enable_grad(), hybrid_attention(decoder.model), observed(observations.append, outputs.append):
            entered = entering.pop().requires_grad_()
            output = decoder.run(layer, entered, calls, AttentionState())
        gradient, *attended = torch.autograd.grad(output, [entered, *outputs], gradient)
        if decoder.layout.units_per_layer[layer]:
            with torch.no_grad():
                for block in attention_blocks(observations[0], attended[0]):
                    for statistic in statistics:
                        statistic.add(layer, block)
