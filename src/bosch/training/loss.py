"""What is minimised: the mean over a batch's targets, in nats a token.

A batch without targets has the loss 0, yet goes through the model, as other processes may wait for its gradients. The
model makes no cache: packed documents would then see each other.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

from bosch.training.packing import IGNORED

Loss = Callable[[nn.Module, Mapping[str, Tensor]], Tensor]
"""From a model and a batch of `PackedSequences.batch` to a scalar."""


def language_modeling_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The negative log-likelihood of the text, as the model itself computes it (fused, where it can); where few tokens
    are targets, only their logits are made."""
    targets = batch["labels"][:, 1:][_predicts(batch)]
    if 2 * len(targets) > batch["labels"].numel():
        return model(**batch, use_cache=False).loss
    return cross_entropy(_target_logits(model, batch), targets, reduction="sum") / max(len(targets), 1)


def distillation_loss(teacher: nn.Module, is_mixed: bool = False) -> Loss:
    """KL(teacher || student): the text is read, and the teacher's probabilities of the next token are learned.

    Args:
        teacher: a causal language model with the student's vocabulary, in evaluation mode; it is moved to where the
            batches are.
        is_mixed: whether the student's products are bfloat16; the teacher's are then too.
    """
    teacher.requires_grad_(False)

    def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        student = _target_logits(model, batch)
        if not len(student):
            return student.sum()
        with torch.autocast(student.device.type, torch.bfloat16, enabled=is_mixed):
            wanted = _target_logits(teacher.to(student.device), batch)
        return kl_div(student.log_softmax(-1), wanted.log_softmax(-1), reduction="batchmean", log_target=True)

    return loss


def _target_logits(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """(number of targets, vocabulary), at least float32: what predicts each target. Of positions that predict none in
    any row, no logits are made."""
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    predicts = _predicts(batch)
    positions = predicts.any(0).nonzero()[:, 0]
    logits = model(**inputs, use_cache=False, logits_to_keep=positions).logits[predicts[:, positions]]
    return logits if logits.dtype.itemsize > 4 else logits.float()


def _predicts(batch: Mapping[str, Tensor]) -> Tensor:
    """(B, N - 1) bool: whether the token after a position is a target."""
    return batch["labels"][:, 1:] != IGNORED
