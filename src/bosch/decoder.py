"""Any causal language model of transformers, seen as embedding, layers, final norm and head.

Nothing here knows a family by name. The parts are found by what they do: the layers are the one list of modules as
long as the config says, the units are read off a dry run of two tokens, and what each layer is called with is recorded
from the model's own forward pass. So a pass can start at any layer, leave out the tokens whose states no mask can
change, and hand only the answers to the head.
"""

import contextlib
import copy
import dataclasses
import functools
import inspect
import itertools
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
    find_backbone,
    hybrid_attention,
    layer_lists,
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
        self.backbone = find_backbone(model)
        (self.layers,) = layer_lists(model, self.backbone)
        with errors_in_words(model):
            seen, self.tail, self._rests = self._inspect()
        self.attentions = tuple(tuple(dict.fromkeys(call.module for call in layer)) for layer in seen)
        check_own_keys(seen)
        self.layout = HeadLayout(tuple(count_units(layer) for layer in seen))
        self.cache_size = _measure_cache(seen, self.layout)
        with errors_in_words(model):
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

    @functools.cached_property
    def obstacle(self) -> str | None:
        """Why no hybrid with a small cache can be made of the model, in a sentence; None where one can. A search needs
        none, but one that is to be deployed is better told before it begins."""
        from bosch.deploy.hybridize import deployable_layers
        from bosch.deploy.layers import layout_of

        try:
            found = layout_of(deployable_layers(self.model))
        except BoschError as error:
            return str(error)
        if found == self.layout:
            return None
        return (
            f"the attention modules of {type(self.model).__name__} say that they are of a model with {found}, but they "
            f"are called in one with {self.layout}"
        )

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
        return input_device(self.model)

    def open(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, LayerCalls]:
        """Embed a batch and record what every layer is called with; no layer is run.

        Args:
            input_ids: (B, T) int64.
            attention_mask: (B, T), 1 for real tokens; None: nothing is padded, or only on the right.

        Returns:
            The hidden states (B, T, hidden size) that enter layer 0, and the layers' calls.
        """
        entered: list[Tensor] = []
        rests = itertools.cycle(self._rests)
        arguments: list[dict[str, Any]] = []

        names = list(inspect.signature(self.layers[0].forward).parameters)

        def record(hidden_states: Tensor, *positional: Any, **named: Any) -> Any:
            entered.append(hidden_states)
            arguments.append(dict(zip(names[1:], positional, strict=False)) | named)
            rest = next(rests)
            return hidden_states if rest is None else (hidden_states, *rest)

        with hybrid_attention(self.model), _forward_replaced(self.layers, record):
            output = self.backbone(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        if len(arguments) != self.num_layers:
            raise BoschError(
                f"a pass of {type(self.model).__name__} calls its {self.num_layers} layers {len(arguments)} times; "
                "expected each of them once"
            )
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
        """What a mask says to one layer; layers that are not eligible stay as they are.

        Raises:
            BoschError: the mask is of another layout.
        """
        if mask.layout != self.layout:
            raise BoschError(f"the mask was made for a model with {mask.layout}, but this model has {self.layout}")
        row = mask.full[layer]
        return AttentionState(row, mask.window_of(layer), mask.sinks) if row else AttentionState()

    def gated_states(self, gates: Tensor, *, window: int, sinks: int) -> list[AttentionState]:
        """What gates say to each layer; layers that are not eligible stay as they are.

        Args:
            gates: (N,), of all units, bottom layer first: 1 full, 0 sliding, between them a mixture of both.
            window: W of sliding attention, in tokens.
            sinks: S, first tokens that sliding attention sees as well.
        """
        return [
            AttentionState(gates=part, window=window, sinks=sinks) if len(part) else AttentionState()
            for part in gates.split(self.layout.units_per_layer)
        ]

    def run_last(
        self, hidden: Tensor, calls: LayerCalls, state: AttentionState, predicting: Tensor, positions: Tensor
    ) -> Tensor:
        """The last layer, with the keys of all tokens but only the queries that predict answers.

        Args:
            hidden: (B, T, hidden size), the states that enter the layer.
            calls: of the batch.
            state: what its attention does.
            predicting: (B, A) int64, positions of the queries.
            positions: (T,) int64, those of the states: all from the first of them on.

        Returns:
            (B, A, hidden size).
        """
        last = self.num_layers - 1
        rows = torch.arange(len(hidden), device=hidden.device)[:, None]
        places = predicting - positions[0]
        if not self.tokens_meet_in_attention_only:
            return self.run(last, hidden, calls, state, positions)[rows, places]
        keys = self.keys(last, hidden, calls, state, positions)
        answering = dataclasses.replace(state, past=None, keys=keys, positions=predicting)
        return self.run(last, hidden[rows, places], calls, answering, predicting)

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
    def _inspect(self) -> tuple[list[list[Observation]], list[nn.Module], list[tuple[Any, ...] | None]]:
        """Each layer's attention calls, the modules after the layers (the final norm), and what each layer returns
        beside the hidden states (None: it returns them alone), as two tokens meet them on their way through the model.
        """
        seen: list[list[Observation]] = [[] for _ in self.layers]
        tail: list[nn.Module] = []
        rests: list[tuple[Any, ...] | None] = []
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
        hooks += [
            module.register_forward_hook(lambda *call: rests.append(call[-1][1:] if type(call[-1]) is tuple else None))
            for module in self.layers
        ]
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
        return seen, tail, rests

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
        if not expected.isfinite().all():
            raise BoschError(
                f"{type(self.model).__name__} gives logits that are not finite for random tokens; expected weights "
                f"without NaN, in a dtype that holds what they compute (now {self.model.dtype})"
            )
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


@contextlib.contextmanager
def errors_in_words(model: PreTrainedModel) -> Iterator[None]:
    """Whatever a model raises when a few tokens go through it is a reason to refuse it."""
    try:
        yield
    except BoschError:
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise BoschError(
            f"{type(model).__name__} cannot be run on a few tokens, at once or layer by layer "
            f"({type(error).__name__}: {reason})"
        ) from error


class _KeysFoundError(Exception):
    """Ends a layer once its keys are known."""


def input_device(model: PreTrainedModel) -> torch.device:
    """Where the tokens go. Weights that accelerate has put elsewhere are brought there by a hook when needed."""
    embeddings = model.get_input_embeddings()
    device: torch.device = embeddings.weight.device  # type: ignore[assignment]
    if device.type == "meta":
        return torch.device(getattr(getattr(embeddings, "_hf_hook", None), "execution_device", None) or "cpu")
    return device


def check_own_keys(layers: Sequence[Sequence[Observation]]) -> None:
    """Each layer must attend by itself, to keys of its own: else its heads cannot slide by themselves.

    Args:
        layers: for each layer, bottom first, the attention calls of one pass.

    Raises:
        BoschError: a layer attends to the very tensor that a layer below it attended to (Gemma 3n, small Gemma 4), or
            by the very module (Zamba).
    """
    first: dict[Any, int] = {}
    for layer, calls in enumerate(layers):
        for call in calls:
            for shared, what in ((call.keys.key.data_ptr(), "keys"), (call.module, "its attention module")):
                if (source := first.setdefault(shared, layer)) != layer:
                    raise BoschError(
                        f"layer {layer} of the model shares {what} with layer {source}, so its heads cannot slide by "
                        "themselves; expected a model whose layers attend each to keys of its own"
                    )


def count_units(observations: Sequence[Observation]) -> int:
    """Units of a layer: none where it does not attend, attends twice, slides already, attends by a rule that is not
    the causal one (chunks, an indexer), or has latent keys."""
    if len(observations) != 1:
        return 0
    (observation,) = observations
    latent = getattr(observation.module, "kv_lora_rank", None) is not None
    slides = observation.call.window is not None or observation.call.allowed is not None
    return 0 if latent or slides else observation.keys.key.shape[1]


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
