"""In place of a layer's one `Attention`: one for each KV head, so that each has pages of its own.

With one head each, all pages have the same size, which is what vLLM's pool of blocks needs; a layer cut in two, its
full heads and its sliding ones, would have pages of many sizes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention import Attention
from vllm.utils.torch_utils import direct_register_custom_op
from vllm.v1.kv_cache_interface import AttentionSpec

from bosch.errors import BoschError
from bosch.serving.placement import Pages, Window
from bosch.serving.specs import placed

OPERATOR = "bosch_attend"


class HeadAttention(Attention):
    """The attention of one KV head and its query heads.

    Args:
        whole: the layer's own attention, which this one takes its settings from.
        head: its place among the layer's KV heads.
        window: what it sees.
        pages: where its tokens lie.
    """

    def __init__(self, whole: Attention, head: int, window: Window, pages: Pages) -> None:
        config = get_current_vllm_config()
        super().__init__(
            whole.num_heads // whole.num_kv_heads,
            whole.head_size,
            whole.impl.scale,
            num_kv_heads=1,
            cache_config=config.cache_config,
            quant_config=whole.quant_config,
            logits_soft_cap=getattr(whole.impl, "logits_soft_cap", None) or None,
            per_layer_sliding_window=window,
            prefix=f"{whole.layer_name}.head{head}",
        )
        if self.sliding_window != window:  # vLLM gives every layer the config's window where that is set
            raise BoschError(f"vLLM gives {self.layer_name} a window of {self.sliding_window}; expected {window}")
        self.pages = pages
        self.use_direct_call = True  # the operator below is the opaque one

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> AttentionSpec:
        """The spec of the pages that its tokens lie in."""
        return placed(super().get_kv_cache_spec(vllm_config), self.pages, vllm_config.cache_config.block_size)


class HeadsAttention(nn.Module):
    """(query, key, value) to output, as `Attention`, head by head.

    Args:
        whole: the layer's own attention, which gives up its place in vLLM's context to this one.
        windows: of each KV head of this process, in the order of the weights.
        pages: of each.
    """

    def __init__(self, whole: Attention, windows: Sequence[Window], pages: Sequence[Pages]) -> None:
        super().__init__()
        self.layer_name = whole.layer_name
        self.heads = nn.ModuleList(
            HeadAttention(whole, head, *how) for head, how in enumerate(zip(windows, pages, strict=True))
        )
        compilation = get_current_vllm_config().compilation_config
        compilation.static_forward_context[self.layer_name] = self
        if compilation.splitting_ops and f"vllm::{OPERATOR}" not in compilation.splitting_ops:
            compilation.splitting_ops.append(f"vllm::{OPERATOR}")

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend.

        Args:
            query: (tokens, H * D).
            key, value: (tokens, G * D).

        Returns:
            (tokens, H * D).
        """
        output = torch.empty_like(query)
        torch.ops.vllm.bosch_attend(query, key, value, output, self.layer_name)
        return output


def attend(query: Tensor, key: Tensor, value: Tensor, output: Tensor, layer_name: str) -> None:
    """All heads of a layer, as one operator, so that a graph is cut once a layer and not once a head."""
    heads = get_forward_context().no_compile_layers[layer_name].heads
    inputs = zip(*(x.chunk(len(heads), dim=-1) for x in (query, key, value, output)), strict=True)
    for head, (q, k, v, out) in zip(heads, inputs, strict=True):
        out.copy_(head(q, k, v))


direct_register_custom_op(OPERATOR, attend, mutates_args=["output"])
