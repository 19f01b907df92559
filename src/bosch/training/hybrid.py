"""The hybrid that is trained: from a search's directory or an export, and back to exports.

While it is trained it is a plain model of transformers whose heads are in the order of deploy mode, full ones first,
and whose attention is that of search mode: it has kernels for GPUs, and for packed documents. Its checkpoints are
deployed hybrids.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bosch.decoder import Decoder
from bosch.deploy import hybridize, mask_of, restore_full_attention
from bosch.deploy.export import drop_unused_sampling, write_files
from bosch.deploy.modeling_bosch import BoschMixin
from bosch.deploy.recipe import Recipe, is_run, load_original, read_mask, read_run
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.models.loading import load_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class TrainedHybrid:
    """A hybrid to be trained.

    Args:
        model: of the original's class, in float32 on the CPU; with all heads full it computes the original.
        tokenizer: the model's.
        recipe: what the hybrid is made of.
        shell: the deployed hybrid without its weights, in the dtype of the checkpoint.
    """

    model: PreTrainedModel
    tokenizer: "PreTrainedTokenizerBase"
    recipe: Recipe
    shell: BoschMixin

    @property
    def mask(self) -> HeadMask:
        """Which heads slide, in the order that the model's heads have now."""
        original = mask_of(self.shell.config)
        if not self.shell.config.bosch.get("reordered", True):
            return original
        return dataclasses.replace(original, full=tuple(tuple(sorted(row, reverse=True)) for row in original.full))

    @contextlib.contextmanager
    def attending(self) -> Iterator[Decoder]:
        """Inside the block the model is the hybrid."""
        decoder = Decoder(self.model)
        with decoder.hybrid(self.mask):
            yield decoder

    def write(self, directory: Path, weights: Mapping[str, Tensor], training: Mapping[str, Any]) -> None:
        """Write an export.

        Args:
            directory: that is there.
            weights: the model's, by name, on the CPU.
            training: the settings it was trained with, as plain data.
        """
        tied = self.shell.all_tied_weights_keys
        state = {name: weight.to(self.shell.dtype) for name, weight in weights.items() if name not in tied}
        write_files(self.shell, self.tokenizer, self.recipe, directory, training=training, state_dict=state)


def open_hybrid(path: Path, trust_remote_code: bool = False) -> TrainedHybrid:
    """The hybrid that a search found, or an exported one.

    Args:
        path: of a search's directory, or of an export, such as a training's checkpoint.
        trust_remote_code: let a checkpoint bring Python code of its own.

    Raises:
        BoschError: it is neither, or its model cannot be loaded.
    """
    if is_run(path):
        recipe = read_run(path)
        model, tokenizer = load_original(recipe, dtype="checkpoint", device="cpu", trust_remote_code=trust_remote_code)
        hybrid = hybridize(model, recipe.mask)
    else:
        model, tokenizer = load_model(str(path), dtype="checkpoint", device="cpu", trust_remote_code=trust_remote_code)
        if not isinstance(model, BoschMixin):
            raise BoschError(f"{path} is no hybrid; expected the directory of a search or of an export")
        recipe = read_mask(str(path), path / "mask.json")
        recipe = dataclasses.replace(recipe, model=recipe.provenance.get("model", recipe.model))
        hybrid = model
    drop_unused_sampling(hybrid)  # now, and not at the first checkpoint
    shell = _without_weights(hybrid)
    return TrainedHybrid(restore_full_attention(hybrid).float(), tokenizer, recipe, shell)


def _without_weights(hybrid: BoschMixin) -> BoschMixin:
    with torch.device("meta"):
        shell = type(hybrid)(copy.deepcopy(hybrid.config))
    nn.Module.to(shell, hybrid.dtype)
    shell.generation_config = copy.deepcopy(hybrid.generation_config)
    # How transformers names and cuts the weights of some families in files, which it notes when it loads them.
    vars(shell)["_weight_conversions"] = getattr(hybrid, "_weight_conversions", None)
    return shell
