"""Any causal language model of transformers, seen as embedding, layers, final norm and head.

Nothing here knows a family by name. The parts are found by what they do: the layers are the one list of modules as
long as the config says, the units are read off a dry run of two tokens, and what each layer is called with is recorded
from the model's own forward pass. So a pass can start at any layer, leave out the tokens whose states no mask can
change, and hand only the answers to the head.
"""

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from bosch.attention.interface import (
    IMPLEMENTATION,
    STATE,
    AttentionState,
    KeyValue,
    Observation,
    hybrid_attention,
    observed,
)
from bosch.cache_size import CacheSize
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.models.positions import num_positions

REPLAY_TOLERANCE = {torch.float64: 1e-6, torch.float32: 3e-5, torch.bfloat16: 0.03, torch.float16: 0.01}
"""Largest accepted difference between replayed and plain logits, as a share of the largest logit: rounding only, since
a convolution over tokens in an untrained layer can show as little as 2e-4. Eager attention takes its softmax in
float32, whatever the model's dtype."""


@dataclasses.dataclass(frozen=True)
class LayerCalls:
    """What a batch enters the layers with: everything but the hidden states between them.

    Args:
        num_tokens: T, tokens per row.
        arguments: for each layer, the keyword arguments (rotary tables, positions, padding) of its call.
        output: the backbone's own output object, whose last hidden state is to be replaced.
    """

    num_tokens: int
    arguments: tuple[dict[str, Any], ...]
    output: ModelOutput


class Decoder:
    """A causal language model taken apart, on its device, in its dtype. The model itself is left as it was.

    Args:
        model: any `AutoModelForCausalLM` of transformers whose attention goes through the attention interface.

    Attributes:
        layout: the units of its layers.
        cache_size: how large the keys and values of a sequence are under any mask.
        tokens_meet_in_attention_only: whether a layer can be run on some of the tokens, given the keys of the others;
            not so for layers with a recurrent state or a convolution over tokens.

    Raises:
        BoschError: the model cannot be taken apart or its layers do not replay to its own logits; the reason is given.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval()
        self.backbone: nn.Module = model.get_decoder()
        self.layers = _find_layers(self.backbone)
        seen, self.tail = self._inspect()
        self.attentions = tuple(tuple(observation.module for observation in layer) for layer in seen)
        self.layout = HeadLayout(tuple(count_units(layer) for layer in seen))
        self.cache_size = _measure_cache(seen, self.layout)
        self._check_replay()
        self.tokens_meet_in_attention_only = self._replay_error(split=5) <= self._tolerance

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return len(self.layers)

    @property
    def config(self) -> Any:
        """The text config."""
        return self.model.config.get_text_config(decoder=True)

    @property
    def state_bytes(self) -> int:
        """One token's hidden state between two layers."""
        return self.config.hidden_size * self.model.dtype.itemsize

    @property
    def max_length(self) -> int | None:
        """Longest sequence the model was made for, in tokens; None where its config does not say."""
        return num_positions(self.model.config)

    @property
    def device(self) -> torch.device:
        """Where inputs go."""
        return self.model.get_input_embeddings().weight.device

    def open(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, LayerCalls]:
        """Embed a batch and record what every layer is called with; no layer is run.

        Args:
            input_ids: (B, T) int64.
            attention_mask: (B, T), 1 for real tokens; None: nothing is padded, or only on the right.

        Returns:
            The hidden states (B, T, hidden size) that enter layer 0, and the layers' calls.
        """
        entered: list[Tensor] = []
        arguments: list[dict[str, Any]] = []

        names = list(inspect.signature(self.layers[0].forward).parameters)

        def record(hidden_states: Tensor, *positional: Any, **named: Any) -> Tensor:
            entered.append(hidden_states)
            arguments.append(dict(zip(names[1:], positional, strict=False)) | named)
            return hidden_states

        with hybrid_attention(self.model), _forward_replaced(self.layers, record):
            output = self.backbone(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        assert len(arguments) == self.num_layers, f"{len(arguments)} of {self.num_layers} layers were called"
        output["last_hidden_state"] = entered[0].new_empty(0)  # it is replaced, and should not be held till then
        return entered[0], LayerCalls(input_ids.shape[1], tuple(arguments), output)

    def run(
        self, layer: int, hidden: Tensor, calls: LayerCalls, state: AttentionState, positions: Tensor | None = None
    ) -> Tensor:
        """Run one layer.

        Args:
            layer: index from the bottom.
            hidden: (B, Tq, hidden size), the states that enter it.
            calls: of the batch.
            state: which groups slide, and the keys that the given tokens do not bring themselves.
            positions: (Tq,) or (B, Tq) int64, which of the T tokens the hidden states belong to; None: all.

        Returns:
            (B, Tq, hidden size), the states that leave it.
        """
        assert self.config._attn_implementation == IMPLEMENTATION, "run layers inside hybrid_attention()"
        arguments = calls.arguments[layer]
        if positions is not None:
            arguments = {
                name: value if name == "attention_mask" else _take(value, positions, calls.num_tokens)
                for name, value in arguments.items()
            }
        with self._attending(layer, state):
            output = self.layers[layer](hidden, **arguments)
        return output[0] if isinstance(output, tuple) else output

    def keys(self, layer: int, hidden: Tensor, calls: LayerCalls, state: AttentionState, positions: Tensor) -> KeyValue:
        """Keys and values of a layer, without its attention or anything after it; arguments as for `run`."""
        found: list[KeyValue] = []

        def stop(observation: Observation) -> None:
            found.append(observation.keys)
            raise _KeysFoundError

        with contextlib.suppress(_KeysFoundError), observed(stop):
            self.run(layer, hidden, calls, state, positions)
        return found[0]

    def run_keeping(
        self, layer: int, hidden: Tensor, calls: LayerCalls, positions: Tensor
    ) -> tuple[Tensor, KeyValue | None]:
        """Run one layer as the model has it, and keep its keys and values; None from a layer without attention."""
        found: list[KeyValue] = []
        with observed(lambda observation: found.append(observation.keys)):
            output = self.run(layer, hidden, calls, AttentionState(), positions)
        return output, found[0] if found else None

    def logits(self, hidden: Tensor, calls: LayerCalls) -> Tensor:
        """The final norm and the model's own head (with its soft caps and scales) on states (N, hidden size).

        Returns:
            (N, vocabulary).
        """
        output = copy.copy(calls.output)
        for module in self.tail:
            hidden = module(hidden)
        output["last_hidden_state"] = hidden[:, None]
        placeholder = torch.zeros(len(hidden), 1, dtype=torch.int64, device=self.device)
        with _forward_replaced([self.backbone], lambda *_, **__: output):
            return self.model(input_ids=placeholder, use_cache=False).logits[:, 0]

    def state(self, mask: HeadMask, layer: int) -> AttentionState:
        """What a mask says to one layer; layers that are not eligible stay as they are."""
        row = mask.full[layer]
        return AttentionState(row, mask.window_of(layer), mask.sinks) if row else AttentionState()

    @torch.no_grad()
    def forward(self, input_ids: Tensor, mask: HeadMask, attention_mask: Tensor | None = None) -> Tensor:
        """Plain logits (B, T, vocabulary) of the hybrid, the whole model in one pass; arguments as for `open`."""
        with self.hybrid(mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits

    @contextlib.contextmanager
    def hybrid(self, mask: HeadMask) -> Iterator[None]:
        """Inside the block the model itself runs as the hybrid, however it is called: batches, padding, caches."""
        with hybrid_attention(self.model), contextlib.ExitStack() as stack:
            for layer in range(self.num_layers):
                stack.enter_context(self._attending(layer, self.state(mask, layer)))
            yield

    @contextlib.contextmanager
    def _attending(self, layer: int, state: AttentionState) -> Iterator[None]:
        modules = self.attentions[layer]
        before = [vars(module).get(STATE) for module in modules]  # blocks may be nested
        for module in modules:
            setattr(module, STATE, state)
        try:
            yield
        finally:
            for module, outer in zip(modules, before, strict=True):
                if outer is None:
                    delattr(module, STATE)
                else:
                    setattr(module, STATE, outer)

    @torch.no_grad()
    def _inspect(self) -> tuple[list[list[Observation]], list[nn.Module]]:
        """Each layer's attention calls, and the modules after the layers (the final norm), as two tokens meet them on
        their way through the model."""
        seen: list[list[Observation]] = [[] for _ in self.layers]
        tail: list[nn.Module] = []
        current = -1

        def enter(layer: int) -> Callable[..., None]:
            def hook(*_: Any) -> None:
                nonlocal current
                current = layer

            return hook

        def leave(module: nn.Module, _: Any) -> None:
            if current == len(self.layers) - 1:
                tail.append(module)

        hooks = [module.register_forward_pre_hook(enter(layer)) for layer, module in enumerate(self.layers)]
        others = (module for module in self.backbone.children() if module is not self.layers)
        hooks += [module.register_forward_pre_hook(leave) for module in others]
        tokens = torch.zeros(1, 2, dtype=torch.int64, device=self.device)
        try:
            with hybrid_attention(self.model), observed(lambda observation: seen[current].append(observation)):
                self.backbone(input_ids=tokens, use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        if not any(seen):
            raise BoschError(
                f"no layer of {type(self.model).__name__} called transformers' attention interface, so its heads "
                "cannot be switched; expected a family that routes through it, such as Llama, Qwen or Gemma"
            )
        return seen, tail

    @property
    def _tolerance(self) -> float:
        return REPLAY_TOLERANCE[self.model.dtype]

    def _check_replay(self) -> None:
        error = self._replay_error(split=0)
        if not error <= self._tolerance:
            raise BoschError(
                f"the layers of {type(self.model).__name__}, run one by one, give logits {error:.1e} away from "
                f"its own (relative; expected at most {self._tolerance:.0e}): the model does more than its layers show"
            )

    @torch.no_grad()
    def _replay_error(self, split: int) -> float:
        """Largest relative difference between the model's own logits and those of its layers run one by one on a few
        random tokens, the first `split` of them before the others."""
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(self.config.vocab_size, (2, 12), generator=generator).to(self.device)
        expected = self.model(input_ids=tokens, use_cache=False).logits[:, split:].double()
        hidden, calls = self.open(tokens)
        before, after = torch.arange(split, device=self.device), torch.arange(split, 12, device=self.device)
        first, rest = hidden[:, :split], hidden[:, split:]
        with hybrid_attention(self.model):
            for layer in range(self.num_layers):
                past = None
                if split:
                    first, past = self.run_keeping(layer, first, calls, before)
                rest = self.run(layer, rest, calls, AttentionState(past=past), after)
            found = self.logits(rest.flatten(0, 1), calls).view(expected.shape).double()
        return float((found - expected).abs().max() / expected.abs().max())


@contextlib.contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Training or evaluation mode of every module is after the block what it was."""
    before = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


class _KeysFoundError(Exception):
    """Ends a layer once its keys are known."""


def _find_layers(backbone: nn.Module) -> nn.ModuleList:
    expected = getattr(backbone.config, "num_hidden_layers", None)
    lists = [m for m in backbone.children() if isinstance(m, nn.ModuleList) and len(m) == expected]
    if len(lists) != 1:
        raise BoschError(
            f"{type(backbone).__name__} has {len(lists)} lists of {expected} layers; expected exactly one, "
            "as in a decoder-only model"
        )
    return lists[0]


def count_units(observations: Sequence[Observation]) -> int:
    """Units of a layer: none where it does not attend, attends twice, slides already, or has latent keys."""
    if len(observations) != 1:
        return 0
    (observation,) = observations
    latent = getattr(observation.module, "kv_lora_rank", None) is not None
    return 0 if latent or observation.call.window is not None else observation.keys.key.shape[1]


def _measure_cache(seen: Sequence[Sequence[Observation]], layout: HeadLayout) -> CacheSize:
    """Sizes of keys and values, as the layers' attention calls show them."""
    layers = list(zip(seen, layout.units_per_layer, strict=True))
    return CacheSize(
        unit_bytes=tuple(_key_bytes(calls[0]) // units if units else 0 for calls, units in layers),
        others=tuple((_key_bytes(call), call.call.window) for calls, units in layers if not units for call in calls),
    )


def _key_bytes(observation: Observation) -> int:
    """Keys and values of one token."""
    return observation.keys.key[0, :, 0].nbytes + observation.keys.value[0, :, 0].nbytes


@contextlib.contextmanager
def _forward_replaced(modules: Sequence[nn.Module] | nn.ModuleList, forward: Callable[..., Any]) -> Iterator[None]:
    before = [module.__dict__.get("forward") for module in modules]
    for module in modules:
        module.forward = forward
    try:
        yield
    finally:
        for module, own in zip(modules, before, strict=True):
            if own is None:
                del module.forward
            else:
                module.forward = own


def _take(value: Any, positions: Tensor, num_tokens: int) -> Any:
    """The part of a layer's argument that belongs to some of the tokens: its second axis, where that has T entries."""
    if isinstance(value, tuple):
        return tuple(_take(item, positions, num_tokens) for item in value)
    if not isinstance(value, Tensor) or value.ndim < 2 or value.shape[1] != num_tokens:
        return value
    if positions.ndim == 1:
        return value.index_select(1, positions)
    rows = torch.arange(len(positions), device=positions.device)[:, None]
    return value.expand(len(positions), *value.shape[1:])[rows, positions]
