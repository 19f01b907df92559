"""A causal language model in which some KV heads of a layer attend to everything and the others to a sliding window.

This file is complete in itself: it needs torch and transformers only, so that a checkpoint can carry it along. The
weights are those of an ordinary model whose heads were reordered, so that in each layer the full KV heads come first,
or not, where `config.bosch["reordered"]` is false. `config.bosch["layers"]` holds, for each layer, {"full": how many of
its KV heads are full, "window": W, "sinks": S} for the others, and "heads": the original's number of each KV head, the
full ones first; none where all heads do the same. A sliding head sees the last W tokens, the query's own included, and
the first S tokens of the sequence. Layers without attention keep the state that their family gives them.

`BoschLlamaForCausalLM`, `BoschLlamaConfig` and so on for every other family are made when they are first asked for.

Letters: B batch, T tokens, n new tokens, G KV heads, R query heads per KV head, D head dimension, W window, S sinks.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    Cache,
    DynamicCache,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.cache_utils import CacheLayerMixin, LinearAttentionCacheLayerMixin, LinearAttentionLayer
from transformers.generation.utils import ALL_CACHE_NAMES
from transformers.masking_utils import prepare_padding_mask, sdpa_mask

CACHE = ALL_CACHE_NAMES[0]
OLD_CACHE = "past_key_values"  # what it was called before, which callers may still say
# Each checkpoint's copy of this file is a module of its own, with its own classes and its own entry in transformers.
IMPLEMENTATION = f"bosch_{hashlib.sha1(__name__.encode()).hexdigest()[:8]}"
UNBOUNDED = 2**62  # the window of a full head; compiled code must be able to add to it
QUERY_BLOCK = 256  # queries whose mask is held at once
BAND_BLOCK = 32  # queries of one block of the band; measured: larger ones waste keys, smaller ones calls


# ---------------------------------------------------------------------------------------------------------------------
# Attention
# ---------------------------------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """How the queries of some KV heads attend; what they may see besides is causal and no padding."""

    scaling: float
    window: int = UNBOUNDED
    sinks: int = 0
    softcap: float | None = None
    sink_logits: Tensor | None = None  # (G, R): one more softmax column that has no value (GPT-OSS)


KeyValue = tuple[Tensor, Tensor]


class NewTokens(NamedTuple):
    """What the cache hands to the attention function: the new keys and values, and the layer that will store them."""

    layer: "BoschCacheLayer"
    key: Tensor
    value: Tensor


def attention_forward(
    module: Any,
    query: Tensor,
    key: Any,
    value: Any,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls: full KV heads first, then the sliding ones.

    Args:
        module: the layer's attention module, with `layer_idx` and `config`.
        query: (B, G * R, n, D).
        key, value: (B, G, n, D), or the new tokens of a cache.
        attention_mask: None, or (B, T) bool with True for real tokens, or (B or 1, 1, n, T) bool or additive, in place
            of the causal rule too; with a cache that holds fewer than T tokens only for a layer of full heads.

    Returns:
        (B, n, G * R, D), and None for the attention probabilities, which are never formed.
    """
    if dropout:
        raise ValueError(f"attention dropout of {dropout} is not supported; expected attention_dropout=0.0")
    layer = None
    if isinstance(key, NewTokens):
        layer, key, value = key
    attention_mask = _as_allowed(attention_mask)
    num_groups = key.shape[1]
    query = query.view(query.shape[0], num_groups, -1, *query.shape[2:])
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    s_aux = None if s_aux is None else s_aux.view(num_groups, -1)
    outputs = []
    parts = _parts(module.config, module.layer_idx, num_groups) if layer is None else layer.parts
    for index, (heads, window, sinks) in enumerate(parts):
        pair, visible = (key[:, heads], value[:, heads]), attention_mask
        if layer is not None:
            pair, visible = layer.stores[index].extend(pair, visible, layer.record_past)
        rule = Rule(scaling, window, sinks, softcap, None if s_aux is None else s_aux[heads])
        outputs.append(attend(query[:, heads], *pair, rule, visible))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
    places = [head for part in parts for head in _numbers(part.heads)]
    if places != sorted(places):
        output = output[:, sorted(range(num_groups), key=places.__getitem__)]
    return output.flatten(1, 2).transpose(1, 2).contiguous(), None


def _as_allowed(mask: Tensor | None) -> Tensor | None:
    """A mask as booleans, True = may be seen."""
    if mask is None or mask.ndim == 2:
        return mask
    if mask.shape[1] != 1:
        raise ValueError(f"an attention mask of shape {tuple(mask.shape)} was given; expected (B, 1, n, T)")
    if not mask.is_floating_point():
        return mask.bool()
    if not torch.compiler.is_compiling() and bool(((mask != 0) & (mask > -1e4)).any()):
        raise ValueError("a 4-D attention mask with biases was given; expected zeros and large negative numbers")
    return mask == 0


class Part(NamedTuple):
    """Some KV heads of a layer, side by side or by number, which attend alike."""

    heads: slice | list[int]
    window: int
    sinks: int


def _parts(config: Any, layer_idx: int, num_groups: int) -> list[Part]:
    """The full heads of a layer and the sliding ones; a set without heads is left out."""
    layer = config.bosch["layers"][layer_idx]
    heads = layer["heads"] if not config.bosch.get("reordered", True) else None
    if layer["heads"] and len(layer["heads"]) != num_groups:
        raise ValueError(
            f"layer {layer_idx} has {num_groups} KV heads here, but the config speaks of {len(layer['heads'])}: a "
            "hybrid cannot be sharded by tensor parallelism"
        )
    places = heads or list(range(num_groups))
    full = layer["full"]
    parts = [(places[:full], UNBOUNDED, 0), (places[full:], layer["window"], layer["sinks"])]
    return [Part(_slice(heads), window, sinks) for heads, window, sinks in parts if heads]


def _slice(heads: list[int]) -> slice | list[int]:
    """The same heads as a slice, if they lie side by side: nothing is copied then."""
    first, past = heads[0], heads[0] + len(heads)
    return slice(first, past) if heads == list(range(first, past)) else heads


def _numbers(heads: slice | list[int]) -> list[int]:
    return list(range(heads.start, heads.stop)) if isinstance(heads, slice) else heads


def attend(query: Tensor, key: Tensor, value: Tensor, rule: Rule, visible: Tensor | None = None) -> Tensor:
    """Attention of the last n of T tokens; a query always sees itself, so that a padding query's output is finite.

    Args:
        query: (B, G, R, n, D).
        key, value: (B, G, T, D). For n = 1 their order is of no matter, and at most W + S of them are given.
        visible: (B, T) bool, or (B or 1, 1, n, T) in place of the causal rule too; None = everything.

    Returns:
        (B, G, R, n, D).
    """
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    covered = num_keys <= rule.window + rule.sinks
    if num_queries == 1 and covered and (visible is None or visible.ndim == 2):
        return _softmax(query, key, value, rule, None if visible is None else visible[:, None, None])
    if visible is None and rule.softcap is None and rule.sink_logits is None:
        if not covered:
            return _attend_in_window(query, key, value, rule)
        if num_queries == num_keys or query.is_cuda:
            return _attend_causally(query, key, value, rule)
    return _attend_by_blocks(query, key, value, rule, visible)


def _softmax(query: Tensor, key: Tensor, value: Tensor, rule: Rule, mask: Tensor | None) -> Tensor:
    """Attention under a mask (X or 1, Y or 1, n, T); the R query heads of a KV head are rows of one head.

    Args:
        query: (X, Y, R, n, D); key, value: (X, Y, T, D), for any X and Y.
    """
    rows = query.shape[2:4]
    if mask is not None:
        mask = mask[:, :, None].expand(-1, -1, rows[0], -1, -1).flatten(2, 3)
    if rule.softcap is None and rule.sink_logits is None:
        output = scaled_dot_product_attention(query.flatten(2, 3), key, value, attn_mask=mask, scale=rule.scaling)
        return output.view(*query.shape[:-1], -1)
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.flatten(2, 3).to(wide) @ key.to(wide).mT * rule.scaling
    if rule.softcap is not None:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if rule.sink_logits is not None:
        column = rule.sink_logits.to(wide).repeat_interleave(rows[1], dim=1)[None, :, :, None]
        scores = torch.cat([scores, column.expand(len(scores), -1, -1, -1)], dim=-1)
    probabilities = scores.softmax(dim=-1)[..., : key.shape[-2]].to(value.dtype)
    return (probabilities @ value).view(*query.shape[:-1], -1)


def _attend_causally(query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
    heads, num_queries, num_keys = query.shape[2], query.shape[-2], key.shape[-2]
    if num_queries == num_keys:
        query = query.flatten(1, 2)
        output = scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=rule.scaling, enable_gqa=heads > 1
        )
        return output.view(*key.shape[:2], heads, num_queries, -1)
    # `is_causal` aligns the first query with the first key. Another bias aligns the last ones; CUDA has a kernel for it
    # that knows nothing of shared keys, so these are expanded, as a view.
    key, value = (x[:, :, None].expand(-1, -1, heads, -1, -1).flatten(0, 1) for x in (key, value))
    bias = causal_lower_right(num_queries, num_keys)
    output = scaled_dot_product_attention(query.flatten(0, 1), key, value, attn_mask=bias, scale=rule.scaling)
    return output.view(*query.shape[:-1], -1)


def _attend_by_blocks(query: Tensor, key: Tensor, value: Tensor, rule: Rule, visible: Tensor | None) -> Tensor:
    """Attention for any mask, one block of queries at a time."""
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    offset = num_keys - num_queries
    index = torch.arange(num_keys, device=query.device)
    outputs = []
    for start in range(0, num_queries, QUERY_BLOCK):
        stop = min(start + QUERY_BLOCK, num_queries)
        if visible is None or visible.ndim == 2:
            keys = slice(0 if rule.sinks else max(0, offset + start - rule.window + 1), offset + stop)
            lag = index[offset + start : offset + stop, None] - index[keys]
            seen = (lag >= 0)[None] if visible is None else (lag >= 0) & visible[:, None, keys]
        else:
            keys = slice(0, num_keys)
            lag = index[offset + start : offset + stop, None] - index
            seen = visible[:, 0, start:stop]
        if rule.window != UNBOUNDED:
            seen = seen & ((lag < rule.window) | (seen.cumsum(-1) <= rule.sinks))
        mask = (seen | (lag == 0))[:, None]
        outputs.append(_softmax(query[..., start:stop, :], key[:, :, keys], value[:, :, keys], rule, mask))
    return torch.cat(outputs, dim=-2)


def _attend_in_window(query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
    """The first W + S tokens see everything before them; after them each block of queries has its own band of keys."""
    num_queries, offset = query.shape[-2], key.shape[-2] - query.shape[-2]
    head = min(max(rule.window + rule.sinks - offset, 0), num_queries)
    tail = (num_queries - head) % BAND_BLOCK
    outputs = []
    if head:
        keys = slice(0, offset + head)
        outputs.append(
            attend(query[..., :head, :], key[:, :, keys], value[:, :, keys], rule._replace(window=UNBOUNDED))
        )
    for start, stop, size in ((head, num_queries - tail, BAND_BLOCK), (num_queries - tail, num_queries, tail)):
        if stop > start:
            keys = slice(0, offset + stop)
            outputs.append(_attend_in_bands(query[..., start:stop, :], key[:, :, keys], value[:, :, keys], rule, size))
    return torch.cat(outputs, dim=-2)


def _attend_in_bands(query: Tensor, key: Tensor, value: Tensor, rule: Rule, size: int) -> Tensor:
    """Blocks of `size` queries, each past the first W + S tokens: one call for all, as one mask serves each of them."""
    count = query.shape[-2] // size
    blocks = query.flatten(0, 1).unflatten(2, (count, size)).transpose(1, 2)
    row = torch.arange(size, device=query.device)[:, None]
    column = torch.arange(-rule.sinks, size + rule.window - 1, device=query.device)
    mask = (column < 0) | ((column >= row) & (column < row + rule.window))
    bands = [_bands(x.flatten(0, 1), rule, count, size) for x in (key, value)]
    output = _softmax(blocks, bands[0], bands[1], rule, mask[None, None])
    return output.transpose(1, 2).flatten(2, 3).unflatten(0, query.shape[:2])


def _bands(keys: Tensor, rule: Rule, count: int, size: int) -> Tensor:
    """(B * G, count, S + size + W - 1, D) from (B * G, T, D): the sinks and each block's keys; a view if S = 0."""
    first = keys.shape[1] - count * size - rule.window + 1
    bands = keys[:, first:].unfold(1, size + rule.window - 1, size).mT
    if not rule.sinks:
        return bands
    return torch.cat([keys[:, None, : rule.sinks].expand(-1, count, -1, -1), bands], dim=2)


def mask_forward(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    **options: Any,
) -> Tensor | None:
    """What the model's mask says beyond causality: None, (B, T) bool of real tokens, or (B, 1, n, T) if need be."""
    config, local_size = options.get("config"), options.get("local_size")
    in_chunks = local_size is not None and local_size == getattr(config, "attention_chunk_size", None)
    if not allow_is_causal_skip or in_chunks:  # packed sequences and other rules
        options |= {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset}
        return sdpa_mask(kv_offset=kv_offset, attention_mask=attention_mask, allow_is_causal_skip=False, **options)
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is None:
        return None
    padding = padding[:, kv_offset : kv_offset + kv_length]
    # A compiled step must not depend on what is in the mask.
    return None if not torch.compiler.is_compiling() and padding.all() else padding


AttentionInterface.register(IMPLEMENTATION, attention_forward)
AttentionMaskInterface.register(IMPLEMENTATION, mask_forward)


# ---------------------------------------------------------------------------------------------------------------------
# Cache
# ---------------------------------------------------------------------------------------------------------------------


class Store:
    """Keys and values of some KV heads of one layer: of every token, or of the first S and the last W.

    Token p lies in column p as long as p < S + W, and later in the place of token p - W, which no query sees any more:
    nothing is moved or copied, and one query attends to the buffers as they lie, since the order of keys is of no
    matter. In a padded batch the first S columns hold each row's own first S real tokens.
    """

    def __init__(self, window: int, sinks: int) -> None:
        self.window, self.sinks = window, sinks
        self.slides = window != UNBOUNDED
        self.buffers: list[Tensor] = []  # keys and values, (B, G, columns, D) each
        self.seen = 0  # tokens so far
        self.records_past = False  # nothing is given up until `crop`
        self.period = window  # columns after the sinks; without bound while the past is recorded
        self.base = sinks  # the token that the first column after the sinks was made for
        self.given_up = sinks  # the first token after the sinks that was not given up before the last rollback

    def extend(self, new: KeyValue, padding: Tensor | None, record_past: bool) -> tuple[KeyValue, Tensor | None]:
        """Store n new tokens, and return what they attend to: sinks first, the new last; for n = 1 in any order.

        Args:
            new: keys and values (B, G, n, D).
            padding: (B, T) bool over all tokens so far, True = real; None = all real; or (B, 1, n, T), a rule of the
                model's own for the n queries.
            record_past: hold everything until `crop`.

        Returns:
            Keys and values (B, G, columns, D), and which of them are real (B, columns), or the rule; None = all.

        Raises:
            ValueError: a rule of the model's own reaches back to tokens that sliding heads do not hold.
        """
        if padding is not None and padding.ndim == 4:
            return self._extend_under_rule(new, padding, record_past)
        if self.slides and record_past != self.records_past:
            self._arrange(record_past)
        start, num_new = self.seen, new[0].shape[2]
        loses_nothing = num_new == 1 or start + num_new - self.base <= self.period
        if start and loses_nothing and (padding is None or start >= self.sinks):
            return self._extend_in_place(new, padding)
        return self._extend_in_order(new, padding)

    def _extend_under_rule(self, new: KeyValue, allowed: Tensor, record_past: bool) -> tuple[KeyValue, Tensor]:
        """Attend to all tokens, in their order, as the rule counts them."""
        if self.slides and self.seen:
            raise ValueError(
                f"a 4-D attention mask was given with a cache of {self.seen} tokens, of which sliding heads hold only "
                "the last ones; expected (B, T), or an empty cache"
            )
        pair, _ = self.extend(new, None, record_past)
        return pair, allowed

    def _extend_in_place(self, new: KeyValue, padding: Tensor | None) -> tuple[KeyValue, Tensor | None]:
        """Write, then attend to the buffers: the new tokens lie side by side."""
        column, num_new = self._column(self.seen), new[0].shape[2]
        self._reserve(new, self.seen + num_new)
        self._write_sinks(new, padding)
        self._copy(new, 0, column, num_new)
        self.seen += num_new
        columns = self._num_columns(self.seen)
        keys, values = (buffer[:, :, :columns] for buffer in self.buffers)
        if padding is None:
            return (keys, values), None
        newest = self.seen - 1
        after_sinks = torch.arange(columns - self.sinks, device=padding.device)
        tokens = newest - (newest - self.base - after_sinks) % self.period
        return (keys, values), _real(padding, self.sinks, self._oldest(), tokens)

    def _extend_in_order(self, new: KeyValue, padding: Tensor | None) -> tuple[KeyValue, Tensor | None]:
        """Copy what the new tokens may see of the past, as some of it gives way to them."""
        start = self.seen
        first = min(max(self._oldest(), start - self.window + 1), start)
        keys, values = new
        if start:
            keys, values = (
                torch.cat([*self._past(buffer, first), x], dim=2) for buffer, x in zip(self.buffers, new, strict=True)
            )
        self._write(new, padding)
        if padding is None:
            return (keys, values), None
        tokens = torch.arange(first, self.seen, device=padding.device)
        return (keys, values), _real(padding, min(self.sinks, start), first, tokens)

    def crop(self, count: int) -> None:
        """Forget the newest tokens.

        Raises:
            ValueError: of what would then be the window, something was given up already.
        """
        seen = self.seen - count
        self.given_up = self._oldest()
        if seen < 0 or max(seen - self.window + 1, self.sinks) < self.given_up:
            raise ValueError(
                f"cannot forget the last {count} of {self.seen} tokens: the window of {self.window} tokens before them "
                "is no longer held; call activate_past_recording() on the cache before those tokens come"
            )
        self.seen = seen
        if self.records_past:
            self._arrange(True)

    def nbytes_at(self, num_tokens: int) -> int:
        """Bytes for that many tokens."""
        return min(num_tokens, self.sinks + self.window) * sum(buffer[:, :, 0].nbytes for buffer in self.buffers)

    def _oldest(self) -> int:
        """The first token after the sinks that is still held."""
        return max(self.given_up, self.seen - self.period)

    def _num_columns(self, seen: int) -> int:
        return self.sinks + min(seen - self.base, self.period)

    def _column(self, token: int) -> int:
        place = token - self.base
        return self.sinks + (place if place < self.period else place % self.period)

    def _past(self, buffer: Tensor, first: int) -> list[Tensor]:
        """The sinks, then the tokens from `first` on in their order, in up to three pieces."""
        pieces = [buffer[:, :, : min(self.sinks, self.seen)]]
        if first < self.seen:
            start, stop = self._column(first), self._column(self.seen - 1) + 1
            wraps = start >= stop
            pieces.append(buffer[:, :, start : self.sinks + self.period if wraps else stop])
            pieces += [buffer[:, :, self.sinks : stop]] if wraps else []
        return pieces

    def _arrange(self, record_past: bool) -> None:
        """Lay the sinks and the last W tokens out in order, in buffers of their own size."""
        first = max(self._oldest(), self.seen - self.window)
        self.buffers = [torch.cat(self._past(buffer, first), dim=2) for buffer in self.buffers]
        self.base = self.given_up = first
        self.period = UNBOUNDED if record_past else self.window
        self.records_past = record_past

    def _write(self, new: KeyValue, padding: Tensor | None) -> None:
        """Any number of new tokens; the last of them may go round the end of the buffers, earlier ones be lost."""
        start, stop = self.seen, self.seen + new[0].shape[2]
        self._reserve(new, stop)
        self._write_sinks(new, padding)
        if padding is None and start < self.sinks:
            self._copy(new, 0, start, min(self.sinks, stop) - start)
        token = max(start, self.base, stop - self.period)
        while token < stop:
            column = self._column(token)
            count = min(stop - token, self.sinks + self.period - column)
            self._copy(new, token - start, column, count)
            token += count
        self.seen = stop

    def _copy(self, new: KeyValue, source: int, column: int, count: int) -> None:
        for buffer, x in zip(self.buffers, new, strict=True):
            buffer[:, :, column : column + count] = x[:, :, source : source + count]

    def _write_sinks(self, new: KeyValue, padding: Tensor | None) -> None:
        """In a padded batch: each row's sinks into the first columns, those that are among the new tokens."""
        if padding is None or not self.sinks:
            return
        tokens = _first_real(padding, min(self.sinks, padding.shape[1]))
        index = (tokens - self.seen)[:, None, :, None]
        for buffer, x in zip(self.buffers, new, strict=True):
            columns = buffer[:, :, : tokens.shape[1]]
            source = index.clamp(0, x.shape[2] - 1).expand(-1, x.shape[1], -1, x.shape[3])
            columns.copy_(torch.where((index >= 0) & (index < x.shape[2]), x.gather(2, source), columns))

    def _reserve(self, new: KeyValue, seen: int) -> None:
        """Make room. Full buffers grow by 1/64: at most 1.6 % lies idle, and a token is copied about 64 times in all,
        little beside its being read for each later token; below 64 tokens nothing lies idle."""
        columns = self._num_columns(seen)
        old = self.buffers or [x[:, :, :0] for x in new]
        if columns > old[0].shape[2]:
            size = min(columns + columns // 64, self.sinks + self.period)
            self.buffers = [x.new_empty(*x.shape[:2], size, x.shape[3]) for x in new]
            for buffer, x in zip(self.buffers, old, strict=True):
                buffer[:, :, : x.shape[2]] = x
                buffer[:, :, x.shape[2] :] = 0  # a masked column that holds a NaN would still make NaN of the sum


def _first_real(padding: Tensor, count: int) -> Tensor:
    """(B, count): each row's first real tokens; T where there is none yet."""
    rank = padding.cumsum(-1)[:, None]
    return (rank <= torch.arange(count, device=padding.device)[:, None]).sum(-1)


def _real(padding: Tensor, num_sinks: int, first: int, tokens: Tensor) -> Tensor:
    """Which columns count: sinks that are not held after the sinks as well, real tokens, and the newest token."""
    newest = tokens == padding.shape[1] - 1
    return torch.cat([_first_real(padding, num_sinks) < first, padding[:, tokens] | newest], dim=1)


class BoschCacheLayer(CacheLayerMixin):
    """One layer of the cache: a store for its full KV heads, and one for its sliding ones."""

    is_sliding = False  # so that masks are made for all tokens; what a head does not see is cut by the attention
    is_croppable = True
    supports_early_init = False

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.parts: list[Part] = []
        self.stores: list[Store] = []
        self.record_past = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make the stores, now that the number of KV heads is known."""
        self.parts = _parts(self.config, self.layer_idx, key_states.shape[1])
        self.stores = [Store(window, sinks) for _, window, sinks in self.parts]
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Hand the new tokens on: only the attention function knows the padding, and so where the sinks are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        new = NewTokens(self, key_states, value_states)
        return new, new

    def get_seq_length(self) -> int:
        """Tokens so far."""
        return self.stores[0].seen if self.stores else 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Masks are made for all tokens."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """No bound."""
        return -1

    def activate_past_recording(self) -> None:
        """From now on nothing is given up until `crop`."""
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the newest tokens, given as a negative number; 0 gives up what recording held."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes minus the number of tokens to forget, got {tokens_to_remove}")
        for store in self.stores:
            store.crop(-tokens_to_remove)

    def reset(self) -> None:
        """Empty it."""
        self.stores, self.is_initialized = [], False

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take the rows of other beams."""
        self._map(lambda buffer: buffer.index_select(0, beam_idx.to(buffer.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row."""
        self._map(lambda buffer: buffer.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows."""
        self._map(lambda buffer: buffer[indices])

    def _map(self, change: Callable[[Tensor], Tensor]) -> None:
        for store in self.stores:
            store.buffers = [change(buffer) for buffer in store.buffers]


class BoschCacheLayerWithStates(LinearAttentionLayer, BoschCacheLayer):  # type: ignore[override]
    """The same beside the recurrent and convolution states of a layer that has both (Falcon-H1)."""

    is_compileable = False

    def __init__(self, config: Any, layer_idx: int, number_of_states: int) -> None:
        BoschCacheLayer.__init__(self, config, layer_idx)
        LinearAttentionLayer.__init__(self, number_of_states)

    def lazy_initialization(self, *arguments: Any, **options: Any) -> None:
        """Of the states, or of keys and values: two tensors, as `update` gives them."""
        kind = BoschCacheLayer if len(arguments) == 2 and not options else LinearAttentionLayer
        kind.lazy_initialization(self, *arguments, **options)

    def reset(self) -> None:
        """Empty both."""
        LinearAttentionLayer.reset(self)
        BoschCacheLayer.reset(self)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take the rows of other beams in both."""
        LinearAttentionLayer.reorder_cache(self, beam_idx)  # type: ignore[arg-type]
        BoschCacheLayer.reorder_cache(self, beam_idx)

    def activate_past_recording(self) -> None:
        """In both; one flag serves them."""
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the newest tokens in both."""
        LinearAttentionLayer.crop(self, tokens_to_remove)
        BoschCacheLayer.crop(self, tokens_to_remove)


class BoschCache(Cache):
    """The cache of a hybrid: all tokens for full KV heads, S + W for sliding ones. Layers without attention, and states
    beside attention, are those of the family.

    Args:
        config: of the hybrid, or of the text model inside.
    """

    def __init__(self, config: Any) -> None:
        text = config.get_text_config(decoder=True)
        stock = DynamicCache(config=text).layers
        super().__init__(layers=[_cache_layer(text, index, layer) for index, layer in enumerate(stock)])

    @property
    def nbytes(self) -> int:
        """Bytes that the cache occupies now, the room for the next tokens included."""
        return sum(buffer.untyped_storage().nbytes() for store in self._stores() for buffer in store.buffers)

    def nbytes_at(self, num_tokens: int) -> int:
        """Bytes for that many tokens in as many rows as it has now: per KV head and row, dtype size * (D of keys + D of
        values) * T where it is full, min(T, S + W) where it slides. Growing buffers take up to 1/64 more.

        Raises:
            ValueError: no token has come yet, so that rows, sizes and dtype are not known.
        """
        if not self.get_seq_length():
            raise ValueError(
                "an empty cache does not know its rows, sizes and dtype yet; expected one that saw a token"
            )
        return sum(store.nbytes_at(num_tokens) for store in self._stores())

    def _stores(self) -> list[Store]:
        return [store for layer in self.layers if isinstance(layer, BoschCacheLayer) for store in layer.stores]


def _cache_layer(config: Any, layer_idx: int, stock: Any) -> Any:
    """The layer of a hybrid's cache in place of the family's own."""
    if not isinstance(stock, CacheLayerMixin):
        return stock
    if isinstance(stock, LinearAttentionCacheLayerMixin):
        return BoschCacheLayerWithStates(config, layer_idx, stock.number_of_states)
    return BoschCacheLayer(config, layer_idx)


# ---------------------------------------------------------------------------------------------------------------------
# Model
# ---------------------------------------------------------------------------------------------------------------------


class BoschMixin(PreTrainedModel, GenerationMixin):
    """What a hybrid does otherwise than its base class: it attends as above, and its cache is small unless told so."""

    _auto_class: Any = None  # of each hybrid's class: save_pretrained copies this file into the checkpoint

    def __init__(self, config: Any, *arguments: Any, **options: Any) -> None:
        text = config.get_text_config(decoder=True)
        if not isinstance(getattr(text, "bosch", None), dict):
            raise ValueError("config.bosch is missing: it says which heads slide; expected a hybrid's own config")
        text._attn_implementation = IMPLEMENTATION
        super().__init__(config, *arguments, **options)

    @classmethod
    def is_custom_code(cls) -> bool:
        """No: the modules are the family's own, and what is not in a checkpoint (buffers) is filled in as theirs is."""
        return False

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> Any:
        """As of any model, but whole: a process that held some heads only would take them for all.

        Raises:
            ValueError: it is to be sharded by tensor parallelism.
        """
        distributed = getattr(options.get("distributed_config"), "tp_size", None) or 1
        if options.get("tp_plan") is not None or (options.get("tp_size") or distributed) > 1:
            raise ValueError(
                "a hybrid cannot be sharded by tensor parallelism, as its full and its sliding heads would lie on "
                "different processes; load it without tp_plan, tp_size and distributed_config"
            )
        return super().from_pretrained(*arguments, **options)

    def new_cache(self) -> BoschCache:
        """An empty cache, for `generate` or `forward`."""
        return BoschCache(self.config)

    def set_attn_implementation(self, attn_implementation: Any, *_: Any, **__: Any) -> None:
        """Refused, as every other implementation would silently attend to everything."""
        if attn_implementation != IMPLEMENTATION:
            raise ValueError(f"a hybrid has its own attention; it cannot be run with {attn_implementation!r}")

    def _prepare_cache_for_generation(self, generation_config: Any, model_kwargs: Any, *arguments: Any) -> Any:
        if model_kwargs.get(CACHE) is None and generation_config.use_cache is not False:
            if generation_config.cache_implementation not in (None, "dynamic"):
                raise ValueError(
                    f"a hybrid has its own cache; expected no cache_implementation, "
                    f"got {generation_config.cache_implementation!r}"
                )
            model_kwargs[CACHE] = self.new_cache()
            if generation_config.is_assistant:
                model_kwargs[CACHE].activate_past_recording()
        else:
            super()._prepare_cache_for_generation(generation_config, model_kwargs, *arguments)  # type: ignore[misc]

    def _check_call(self, cache: Any) -> None:
        implementation = self.config.get_text_config(decoder=True)._attn_implementation
        if implementation != IMPLEMENTATION:
            raise ValueError(
                f"the attention of a hybrid was changed to {implementation!r}, which would attend to "
                f"everything; expected {IMPLEMENTATION!r}"
            )
        if cache is not None and not isinstance(cache, BoschCache):
            raise ValueError(
                f"a hybrid has its own cache; expected one made by new_cache(), got {type(cache).__name__}"
            )


@functools.cache
def _hybrid_config(base: Any) -> Any:
    # `__module__` tells transformers which file to save, and that this is no class of its own.
    body = {"__module__": __name__, "model_type": f"bosch_{base.model_type}", "_auto_class": "AutoConfig"}
    return type(f"Bosch{base.__name__}", (base,), body)


@functools.cache
def _hybrid_model(base: Any) -> Any:
    position = list(inspect.signature(base.forward).parameters).index(CACHE) - 1  # self not counted

    @functools.wraps(base.forward)  # generate() looks at the signature
    def forward(self: Any, *arguments: Any, **options: Any) -> Any:
        if OLD_CACHE in options and CACHE not in options:
            options[CACHE] = options.pop(OLD_CACHE)
        cache = arguments[position] if len(arguments) > position else options.get(CACHE)
        use_cache = (
            self.config.get_text_config(decoder=True).use_cache
            if options.get("use_cache") is None
            else options["use_cache"]
        )
        if cache is None:
            options["use_cache"] = use_cache and not self.training
            cache = options[CACHE] = self.new_cache() if options["use_cache"] else None
        self._check_call(cache)
        return base.forward(self, *arguments, **options)

    sees = base.__name__.endswith("ForConditionalGeneration")
    body = {
        "__module__": __name__,
        "config_class": _hybrid_config(base.config_class),
        "forward": forward,
        "_auto_class": "AutoModelForImageTextToText" if sees else "AutoModelForCausalLM",
    }
    return type(f"Bosch{base.__name__}", (BoschMixin, base), body)


def __getattr__(name: str) -> Any:
    """`BoschXConfig` and `BoschXForCausalLM` for every such X of transformers."""
    base: Any = getattr(transformers, name.removeprefix("Bosch"), None) if name.startswith("Bosch") else None
    is_class = inspect.isclass(base)
    if is_class and hasattr(base, "model_type"):
        return _hybrid_config(base)
    if is_class and CACHE in inspect.signature(base.forward).parameters:
        return _hybrid_model(base)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
