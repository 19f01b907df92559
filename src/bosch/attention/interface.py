"""Search mode (paper B.2): one attention function for every layer of every family, and the masks it follows.

transformers lets a model call any attention function that is registered by name. Ours splits the KV groups of a layer
into full and sliding ones, runs one kernel on each and puts the outputs back in their places. No weight is touched;
what a layer does is a small object on its attention module, so that switching masks costs nothing.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.generation.utils import ALL_CACHE_NAMES
from transformers.masking_utils import prepare_padding_mask, sdpa_mask

from bosch.attention.documents import number_documents
from bosch.attention.kernels import AttentionCall, attend
from bosch.errors import BoschError

IMPLEMENTATION = "bosch"
STATE = "bosch_attention"


@dataclasses.dataclass(frozen=True)
class KeyValue:
    """Keys and values of one layer: (B, G, T, D) and (B, G, T, Dv), rotary positions applied to the keys."""

    key: Tensor
    value: Tensor


@dataclasses.dataclass(frozen=True)
class AttentionState:
    """What one layer's attention does during a pass.

    Args:
        full: per KV group, True = full attention, False = sliding; None leaves the layer as the model has it.
        window: W of the sliding groups, in tokens, the query's own position included.
        sinks: first real tokens of each row that sliding groups see as well.
        past: keys and values of the tokens before the given ones.
        keys: keys and values of all tokens, in place of those computed from the given ones.
        positions: (B, Tq) int64, the position of each query among the keys; None: the queries are the last ones.
        gates: (G,), in place of `full`: a group's output is gate * full attention + (1 - gate) * sliding attention, to
            be differentiated in the gates.
    """

    full: tuple[bool, ...] | None = None
    window: int | None = None
    sinks: int = 0
    past: KeyValue | None = None
    keys: KeyValue | None = None
    positions: Tensor | None = None
    gates: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Observation:
    """One call of the attention function, as an observer sees it.

    Args:
        module: the layer's attention module.
        query: (B, H, T, D), rotary positions applied.
        keys: keys and values.
        call: how the layer attends by itself, without our mask.
    """

    module: nn.Module
    query: Tensor
    keys: KeyValue
    call: AttentionCall


def _ignore(_: Tensor) -> None:
    """Outputs are of no interest."""


Observers = tuple[Callable[[Observation], None], Callable[[Tensor], None]]
_observers: contextvars.ContextVar[Observers | None] = contextvars.ContextVar("attention_observers", default=None)


@contextlib.contextmanager
def observed(before: Callable[[Observation], None], after: Callable[[Tensor], None] = _ignore) -> Iterator[None]:
    """Show every attention call inside the block to `before`, and its output (B, T, H, Dv) to `after`."""
    token = _observers.set((before, after))
    try:
        yield
    finally:
        _observers.reset(token)


def find_backbone(model: PreTrainedModel) -> PreTrainedModel:
    """The text model inside: what holds the one list of as many modules as the text config has layers.

    Raises:
        BoschError: there is none, or several; or the model is sharded by tensor parallelism, so that each process
            sees some heads only.
    """
    if (getattr(model, "tp_size", None) or 1) > 1:
        raise BoschError(
            f"this {type(model).__name__} is sharded by tensor parallelism over {model.tp_size} processes, each of "
            "which has some of the heads only; expected a whole model (device_map spreads one over several devices)"
        )
    decoder = model.get_decoder()
    modules = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    found = [module for module in modules if layer_lists(model, module)]
    if decoder in found:
        found = [decoder]
    if len(found) != 1 or len(layer_lists(model, found[0])) != 1:
        raise BoschError(
            f"{type(model).__name__} has {sum(len(layer_lists(model, module)) for module in found)} lists of "
            f"{_num_layers(model)} layers; expected exactly one, as in a decoder-only model"
        )
    return found[0]


def layer_lists(model: PreTrainedModel, module: nn.Module) -> list[nn.ModuleList]:
    """The lists right under a module that are as long as the model's text config has layers."""
    length = _num_layers(model)
    return [child for child in module.children() if isinstance(child, nn.ModuleList) and len(child) == length]


def _num_layers(model: PreTrainedModel) -> int | None:
    return getattr(model.config.get_text_config(decoder=True), "num_hidden_layers", None)


@contextlib.contextmanager
def hybrid_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let the model's layers call our attention function inside the block; afterwards the model is as it was.

    Raises:
        BoschError: the model's family does not route its attention through transformers' attention interface.
    """
    configs = {id(module.config): module.config for module in model.modules() if isinstance(module, PreTrainedModel)}
    before = [(config, config._attn_implementation_internal) for config in configs.values()]
    try:
        text = find_backbone(model)
        if text._can_set_attn_implementation():
            text.set_attn_implementation(IMPLEMENTATION)
        if model.config.get_text_config(decoder=True)._attn_implementation != IMPLEMENTATION:
            raise BoschError(
                f"{type(model).__name__} does not route its attention through transformers' attention interface, "
                "so its heads cannot be switched; expected a family that does, such as Llama, Qwen or Gemma"
            )
        with _documents_apart(text):
            yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


@contextlib.contextmanager
def _documents_apart(backbone: nn.Module) -> Iterator[None]:
    """Let packed documents stay apart in every family, however the model is called. transformers sees that positions
    start again only where there is neither a mask nor a cache, in some families not even there, and forms T x T masks.
    """
    hook = backbone.register_forward_pre_hook(_pass_documents, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _pass_documents(_: nn.Module, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    positions, mask = options.get("position_ids"), options.get("attention_mask")
    if positions is None or positions.ndim != 2 or torch.compiler.is_compiling() or bool((positions.diff() > 0).all()):
        return None
    if mask is not None and not (mask.ndim == 2 and mask.all()):  # positions in padding mean nothing
        return None
    if any(options.get(name) is not None for name in ALL_CACHE_NAMES):
        raise BoschError(
            "position_ids that start again, as those of packed documents do, were given with a cache, which cannot "
            "keep documents apart; expected no cache"
        )
    # A mask of four dimensions is handed to the attention function as it is.
    documents = number_documents(positions)[:, None, None]
    return arguments, {**options, "attention_mask": documents, "use_cache": False}


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls.

    Args:
        module: the layer's attention module; an `AttentionState` on it says which groups slide.
        query: (B, H, Tq, D).
        key: (B, G, Tk, D); value: (B, G, Tk, Dv).
        attention_mask: None, or (B, Tk) bool with True for real tokens, or (B or 1, 1, 1, Tk) int64 with each token's
            document, or (B or 1, 1, Tq, Tk) as bool or additive.
        scaling: factor on the logits; D ** -0.5 unless given.
        sliding_window: the layer's own window, in tokens; sliding groups are cut by both windows.
        softcap: logits become softcap * tanh(logits / softcap).
        s_aux: (H,) learned attention sinks: one more softmax column without a value.

    Returns:
        (B, Tq, H, Dv) and None: the attention probabilities are never formed.

    Raises:
        BoschError: dropout, a bidirectional layer, a biased 4-D mask, heads that do not
            share groups evenly, or sinks under a sliding cache.
    """
    state: AttentionState = getattr(module, STATE, None) or AttentionState()
    if dropout:
        raise BoschError(
            f"attention dropout is {dropout}, expected 0: put the model in eval mode, or set its config's to 0"
        )
    if getattr(module, "is_causal", True) is False:
        raise BoschError(f"{type(module).__name__} is not causal; only decoder layers have heads that can slide")
    if state.past is not None:
        key, value = torch.cat([state.past.key, key], dim=2), torch.cat([state.past.value, value], dim=2)
    if state.keys is not None:
        key, value = state.keys.key, state.keys.value

    query, key, value = _autocast(query, key, value)
    if state.sinks and sliding_window and query.shape[2] != key.shape[2]:
        raise BoschError(
            f"{state.sinks} sinks were asked for in a layer whose own sliding cache has dropped the first tokens; "
            "expected 0 sinks there"
        )
    num_heads, num_groups = query.shape[1], key.shape[1]
    if num_heads % num_groups:
        raise BoschError(f"{num_heads} query heads cannot share {num_groups} KV heads evenly; expected a multiple")
    grouped_query = query.unflatten(1, (num_groups, -1))
    native = AttentionCall(
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        softcap=softcap,
        sink_logits=None if s_aux is None else s_aux.view(num_groups, -1),
        positions=state.positions,
    )
    native = _masked(native, attention_mask, query.shape[0])
    before, after = _observers.get() or (None, None)
    if before:
        before(Observation(module, query, KeyValue(key, value), native))
    if state.gates is not None:
        output = _gated_attention(grouped_query, key, value, native, state)
    elif state.full is None or all(state.full):
        output = attend(grouped_query, key, value, native)
    else:
        output = _split_attention(grouped_query, key, value, native, state)
    output = output.flatten(1, 2).transpose(1, 2).contiguous()  # some families take a view of it
    if after:
        after(output)
    return output, None


def _split_attention(query: Tensor, key: Tensor, value: Tensor, native: AttentionCall, state: AttentionState) -> Tensor:
    """Attention of a layer with sliding groups: each set of groups through its own kernel, outputs in place."""
    assert state.full is not None
    local = _local_call(native, state)
    if not any(state.full):
        return attend(query, key, value, local)
    output = query.new_empty(*query.shape[:-1], value.shape[-1])
    for kind, call in ((True, native), (False, local)):
        groups = torch.tensor([g for g, full in enumerate(state.full) if full is kind], device=query.device)
        if call.sink_logits is not None:
            call = dataclasses.replace(call, sink_logits=call.sink_logits[groups])
        part = attend(query.index_select(1, groups), key.index_select(1, groups), value.index_select(1, groups), call)
        output = output.index_copy(1, groups, part)
    return output


def _gated_attention(query: Tensor, key: Tensor, value: Tensor, native: AttentionCall, state: AttentionState) -> Tensor:
    """Attention of a layer with gates: every group by both kernels, mixed in the wider of the two dtypes."""
    assert state.gates is not None
    gates = state.gates[:, None, None, None]
    full, sliding = (attend(query, key, value, call) for call in (native, _local_call(native, state)))
    return (gates * full + (1 - gates) * sliding).to(query.dtype)


def _local_call(native: AttentionCall, state: AttentionState) -> AttentionCall:
    """How the sliding groups of a layer attend."""
    assert state.window is not None
    window = min(state.window, native.window or state.window)
    return dataclasses.replace(native, window=window, sinks=state.sinks)


def _autocast(*tensors: Tensor) -> list[Tensor]:
    """Mixed precision leaves queries and keys wide, after the rotation, and values narrow; kernels want one dtype."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return list(tensors)
    return [tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]


def _masked(call: AttentionCall, attention_mask: Tensor | None, num_rows: int) -> AttentionCall:
    """A call with what a model's mask argument says: padding, documents, or whatever a 4-D mask allows."""
    if attention_mask is None or attention_mask.ndim == 2:
        return dataclasses.replace(call, padding=attention_mask)
    if attention_mask.dtype == torch.int64:
        return dataclasses.replace(call, documents=attention_mask[:, 0, 0].expand(num_rows, -1))
    if attention_mask.shape[1] != 1:
        raise BoschError(
            f"a 4-D attention mask of shape {tuple(attention_mask.shape)} was given; expected (B, 1, Tq, Tk), one "
            "rule for all heads"
        )
    allowed = attention_mask
    if allowed.dtype != torch.bool:
        if bool(((allowed != 0) & (allowed > -1e4)).any()):
            raise BoschError("a 4-D attention mask with biases was given; expected zeros and large negative numbers")
        allowed = allowed == 0
    keys = torch.arange(allowed.shape[-1], device=allowed.device)
    own_position = (allowed * keys).amax(-1)[:, 0]  # a query's own key is the last one that it sees
    return dataclasses.replace(call, allowed=allowed, positions=own_position)


def mask_forward(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    **options: Any,
) -> Tensor | None:
    """The mask function that goes with the attention function.

    Returns:
        None where nothing is padded, (B, Tk) bool where something is, and the whole (B, 1, Tq, Tk) bool where the rule
        is not the plain causal one: packed sequences, block masks, chunks (Llama 4), static caches. Without a mask
        function of the same name, transformers would hand us no padding at all.
    """
    config, local_size = options.get("config"), options.get("local_size")
    in_chunks = local_size is not None and local_size == getattr(config, "attention_chunk_size", None)
    static_cache = isinstance(q_offset, Tensor) or kv_offset + kv_length != q_offset + q_length
    if not allow_is_causal_skip or static_cache or in_chunks:
        return sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,  # type: ignore[arg-type]
            kv_offset=kv_offset,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            **options,
        )
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is None:
        return None
    padding = padding[:, kv_offset : kv_offset + kv_length]
    return None if padding.all() else padding


AttentionInterface.register(IMPLEMENTATION, attention_forward)
AttentionMaskInterface.register(IMPLEMENTATION, mask_forward)
