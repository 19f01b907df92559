"""Full heads first: weights reordered so that every set of heads a layer needs is a slice (paper B.2, deploy mode).

The rows of the query, key and value projections are permuted head by head, the columns of the output projection with
them, and whatever else has an entry per head: biases, norms over a whole projection, learned sinks. The full model
computes what it did, up to the order of the sums in the output projection.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bosch.decoder import REPLAY_TOLERANCE
from bosch.deploy.layers import AttentionLayer
from bosch.errors import BoschError
from bosch.heads import HeadMask

Move = tuple[int, Tensor]
"""An axis of a parameter, and for each place on it the entry that goes there."""

COMPLETE_INPUTS = ({"q_proj", "k_proj", "v_proj"}, {"qkv_proj"}, {"query_key_value"})


def full_first(mask: HeadMask) -> tuple[tuple[int, ...], ...]:
    """For each layer, the KV head that goes to each place: the full ones in their order, then the sliding ones."""
    return tuple(tuple(sorted(range(len(row)), key=lambda head: not row[head])) for row in mask.full)


def permute_heads(
    model: PreTrainedModel, layers: Sequence[AttentionLayer | None], orders: Sequence[Sequence[int]]
) -> None:
    """Reorder the KV heads of a model in place, each with its query heads.

    Args:
        model: a causal language model; one weight at a time is copied.
        layers: its layers.
        orders: for each layer, the KV head that goes to each place; empty, or in the order they have, for a layer
            that stays.

    Raises:
        BoschError: a parameter of an attention module is not known to have heads, or in which place; or the model does
            not compute the same afterwards. The weights are then as they were.
    """
    moves: dict[nn.Parameter, Move] = {}
    for index, (layer, order) in enumerate(zip(layers, orders, strict=True)):
        if layer is not None and list(order) != sorted(order):
            for name, move in _moves(layer, torch.tensor(order)).items():
                parameter = layer.module.get_parameter(name)
                if parameter in moves:
                    raise BoschError(f"parameter {name!r} of layer {index} is shared with another layer, so its heads "
                                     "cannot be reordered; expected weights of the layer's own")  # fmt: skip
                moves[parameter] = move
    if moves:
        _apply_and_check(model, moves)


def _apply_and_check(model: PreTrainedModel, moves: Mapping[nn.Parameter, Move]) -> None:
    tolerance = max(REPLAY_TOLERANCE[model.dtype], REPLAY_TOLERANCE[torch.float32])  # norms are in float32 always
    expected = _logits(model)
    _apply(moves)
    error = float((_logits(model) - expected).abs().max() / expected.abs().max())
    if not error <= tolerance:
        _apply({parameter: (axis, index.argsort()) for parameter, (axis, index) in moves.items()})
        raise BoschError(
            f"with its heads reordered, {type(model).__name__} gives logits {error:.1e} away from its own (relative; "
            f"expected at most {tolerance:.0e}): something else in it knows the heads by number"
        )


@torch.no_grad()
def _apply(moves: Mapping[nn.Parameter, Move]) -> None:
    for parameter, (axis, index) in moves.items():
        parameter.copy_(parameter.index_select(axis, index.to(parameter.device)))


@torch.no_grad()
def _logits(model: PreTrainedModel) -> Tensor:
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    tokens = torch.randint(vocabulary, (2, 12), generator=torch.Generator().manual_seed(0))
    return model(input_ids=tokens.to(model.device), use_cache=False).logits.double()


def _moves(layer: AttentionLayer, groups: Tensor) -> dict[str, Move]:
    """How each parameter of an attention module that has heads is reordered, by name.

    Raises:
        BoschError: a parameter is of an unknown name, shape or type, or a projection is missing.
    """
    heads = _rows(groups, layer.num_heads // layer.num_groups)  # a group's query heads stay together
    found = {}
    for name, parameter in layer.module.named_parameters():
        move = _move(name, tuple(parameter.shape), layer, groups, heads)
        if (
            move is None
            or type(parameter) is not nn.Parameter
            or not parameter.is_floating_point()
            or parameter.is_meta
        ):
            raise _refusal(layer.module, name, parameter)
        if len(move[1]):
            found[name] = move
    projections = {name.removesuffix(".weight") for name in found if name.endswith(".weight")}
    if not any(names <= projections for names in COMPLETE_INPUTS) or not projections & {"o_proj", "dense"}:
        raise BoschError(
            f"{type(layer.module).__name__} has weights of {', '.join(sorted(projections)) or 'no known name'}; "
            "expected q_proj, k_proj and v_proj, or qkv_proj, or query_key_value, and o_proj or dense"
        )
    return found


def _move(name: str, shape: tuple[int, ...], layer: AttentionLayer, groups: Tensor, heads: Tensor) -> Move | None:
    """How one parameter is reordered; an empty order if it has no heads, None if it is not known."""
    query, key = _rows(heads, layer.key_dim), _rows(groups, layer.key_dim)
    value, output = _rows(groups, layer.value_dim), _rows(heads, layer.value_dim)
    inputs = {
        "q_proj": query,
        "k_proj": key,
        "v_proj": value,
        "qkv_proj": torch.cat([query, key + len(query), value + len(query) + len(key)]),  # Phi-3
        "query_key_value": _rows(groups, 2 * layer.key_dim + layer.value_dim),  # GPT-NeoX: head by head
    }
    norms = {"q_norm": (query, heads), "k_norm": (key, groups)}
    unmoved = groups[:0]
    module, _, kind = name.rpartition(".")
    if module in inputs and kind in ("weight", "bias"):
        return (0, inputs[module]) if shape[0] == len(inputs[module]) else None
    if module in ("o_proj", "dense"):
        return {"weight": (1, output) if shape[1:] == (len(output),) else None, "bias": (0, unmoved)}.get(kind)
    if module in norms:
        rows, owners = norms[module]
        over_a_head, over_all, per_head = (layer.key_dim,), (len(rows),), (len(owners), layer.key_dim)
        return {over_a_head: (0, unmoved), over_all: (0, rows), per_head: (0, owners)}.get(shape)
    return (0, heads) if name == "sinks" and shape == (len(heads),) else None


def _rows(order: Tensor, size: int) -> Tensor:
    """The order of rows when each head has `size` of them."""
    return (order[:, None] * size + torch.arange(size)).flatten()


def _refusal(attention: nn.Module, name: str, parameter: nn.Parameter) -> BoschError:
    kind = str(parameter.dtype).removeprefix("torch.")
    return BoschError(
        f"cannot reorder the heads of {type(attention).__name__}: its parameter {name!r} ({kind} "
        f"{tuple(parameter.shape)} on {parameter.device.type}) is not known to have heads, or in which place; expected "
        "plain projections, their biases, norms or sinks (merge adapters and dequantize first)"
    )
