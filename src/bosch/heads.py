"""The two value objects that everything else speaks in: which heads a model has, and which of them slide.

A *unit* is what is switched: one KV group (with multi-head attention, one head). A `HeadLayout` says which units a
model has; a `HeadMask` says of each unit whether it keeps full attention or slides, and with which window.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bosch.common.files import read_json, to_path, write_json
from bosch.errors import BoschError

MASK_SCHEMA = "bosch.mask/1"
LAYER_WINDOWS_SCHEMA = "bosch.mask/2"
"""Of masks whose layers have windows of their own; who knows only the first schema must not read them as if not."""
MAX_LAYERS = 10_000
MAX_UNITS_PER_LAYER = 10_000

Unit = tuple[int, int]
"""(layer, KV head), both counted from 0."""


@dataclasses.dataclass(frozen=True)
class HeadLayout:
    """How many units each layer of a model has.

    Args:
        units_per_layer: for each layer of the model, its number of KV groups; 0 for a layer that is not eligible
            because it is already sliding, linear or latent.

    Raises:
        BoschError: a count is not an integer in 0..10000, or there is no layer.
    """

    units_per_layer: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.units_per_layer) <= MAX_LAYERS:
            raise BoschError(f"a layout needs 1 to {MAX_LAYERS} layers, got {len(self.units_per_layer)}")
        for layer, count in enumerate(self.units_per_layer):
            if type(count) is not int or not 0 <= count <= MAX_UNITS_PER_LAYER:
                raise BoschError(
                    f"layer {layer} has {count!r} units; expected an integer from 0 to {MAX_UNITS_PER_LAYER}"
                )

    @property
    def num_layers(self) -> int:
        """Layers of the model, eligible or not."""
        return len(self.units_per_layer)

    @property
    def num_units(self) -> int:
        """Units of the whole model: the paper's N."""
        return sum(self.units_per_layer)

    @property
    def eligible_layers(self) -> tuple[int, ...]:
        """Layers that have at least one unit, bottom first."""
        return tuple(layer for layer, count in enumerate(self.units_per_layer) if count)

    def units(self) -> Iterator[Unit]:
        """All units, bottom layer first."""
        return ((layer, head) for layer, count in enumerate(self.units_per_layer) for head in range(count))

    def num_localized(self, ratio: float) -> int:
        """Units that every method localizes at a ratio: `ceil(rho * N)`.

        Raises:
            BoschError: the ratio lies outside [0, 1].
        """
        return quota(ratio, self.num_units)

    def __str__(self) -> str:
        counts = sorted(set(self.units_per_layer))
        if len(counts) == 1:
            return f"{self.num_layers} layers x {counts[0]} KV heads"
        return f"{self.num_layers} layers with {', '.join(map(str, self.units_per_layer))} KV heads"


def quota(ratio: float, count: int) -> int:
    """`ceil(ratio * count)`, safe against a ratio like 0.1 * 3 that lies a rounding error above its exact value.

    Raises:
        BoschError: the ratio is not a number in [0, 1].
    """
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        raise BoschError(f"the ratio must be a number from 0 (all full) to 1 (all sliding), got {ratio!r}")
    return math.ceil(round(ratio * count, 9))


@dataclasses.dataclass(frozen=True)
class HeadMask:
    """Which units keep full attention (True, the paper's z = 1) and which slide (False), and how they slide.

    Args:
        layout: the model's units.
        full: for each layer, one boolean per unit; True = full attention.
        window: W, in tokens: a sliding query at position t sees keys j with t - W < j <= t, itself included.
        sinks: k, in tokens: the first k tokens of a sequence stay visible to sliding units as well.
        layer_windows: W for each layer of the model in place of `window`; empty where all layers have that.

    Raises:
        BoschError: the shape does not follow the layout, an entry is not a boolean, a window is not an integer of
            at least 1, or the sinks are not an integer of at least 0.
    """

    layout: HeadLayout
    full: tuple[tuple[bool, ...], ...]
    window: int
    sinks: int = 0
    layer_windows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        shape = tuple(len(row) for row in self.full)
        if shape != self.layout.units_per_layer:
            raise BoschError(f"the mask has {_shape_text(shape)}, but the model has {self.layout}")
        for layer, row in enumerate(self.full):
            for head, value in enumerate(row):
                if type(value) is not bool:
                    raise BoschError(
                        f"unit ({layer}, {head}) of the mask is {value!r}; expected true (full) or false (sliding)"
                    )
        for window in (self.window, *self.layer_windows):
            if type(window) is not int or window < 1:
                raise BoschError(f"the window must be an integer of at least 1 token, got {window!r}")
        if len(self.layer_windows) not in (0, self.layout.num_layers):
            raise BoschError(
                f"the mask has windows for {len(self.layer_windows)} layers, but the model has {self.layout.num_layers}"
            )
        if type(self.sinks) is not int or self.sinks < 0:
            raise BoschError(f"the number of sinks must be an integer of at least 0 tokens, got {self.sinks!r}")

    @classmethod
    def all_full(cls, layout: HeadLayout, window: int, sinks: int = 0) -> "HeadMask":
        """The original model."""
        return cls(layout, tuple((True,) * count for count in layout.units_per_layer), window, sinks)

    @classmethod
    def all_sliding(cls, layout: HeadLayout, window: int, sinks: int = 0) -> "HeadMask":
        """Every unit sliding."""
        return cls(layout, tuple((False,) * count for count in layout.units_per_layer), window, sinks)

    @property
    def localized(self) -> frozenset[Unit]:
        """The sliding units, as (layer, KV head)."""
        return frozenset(unit for unit in self.layout.units() if not self[unit])

    @property
    def num_localized(self) -> int:
        """How many units slide."""
        return sum(self.localized_per_layer)

    @property
    def localized_per_layer(self) -> tuple[int, ...]:
        """How many units of each layer slide."""
        return tuple(row.count(False) for row in self.full)

    @property
    def ratio(self) -> float:
        """Share of units that slide: the paper's rho(z). 0 for a layout without units."""
        return self.num_localized / self.layout.num_units if self.layout.num_units else 0.0

    @property
    def windows(self) -> tuple[int, ...]:
        """The windows that sliding units have, smallest first; `window` where none slides."""
        found = {self.window_of(layer) for layer, count in enumerate(self.localized_per_layer) if count}
        return tuple(sorted(found or {self.window}))

    @property
    def shown_window(self) -> int | str:
        """The window that sliding units have; of several a text: `64, 256`."""
        return self.windows[0] if len(self.windows) == 1 else ", ".join(map(str, self.windows))

    @property
    def reach(self) -> int:
        """How many tokens back a stack of layers sees that all slide, hopping from layer to layer."""
        return sum(self.window_of(layer) - 1 for layer in range(self.layout.num_layers)) + self.sinks

    def window_of(self, layer: int) -> int:
        """W of a layer's sliding units."""
        return self.layer_windows[layer] if self.layer_windows else self.window

    def __getitem__(self, unit: Unit) -> bool:
        layer, head = unit
        return self.full[layer][head]

    def assign(self, values: Mapping[Unit, bool]) -> "HeadMask":
        """A copy in which the given units are full (True) or sliding (False)."""
        rows = [list(row) for row in self.full]
        for (layer, head), value in values.items():
            rows[layer][head] = value
        return dataclasses.replace(self, full=tuple(tuple(row) for row in rows))

    def localize(self, units: Iterable[Unit]) -> "HeadMask":
        """A copy in which the given units slide as well."""
        return self.assign(dict.fromkeys(units, False))

    def give_window(self, window: int, layers: Iterable[int]) -> "HeadMask":
        """A copy in which the sliding units of some layers have another window."""
        windows = [self.window_of(layer) for layer in range(self.layout.num_layers)]
        for layer in layers:
            windows[layer] = window
        return dataclasses.replace(self, layer_windows=tuple(windows))

    def first_difference(self, other: "HeadMask") -> int:
        """The lowest layer in which two masks differ; the number of layers where they are equal."""
        for layer in range(self.layout.num_layers):
            if self._layer_key(layer) != other._layer_key(layer):
                return layer
        return self.layout.num_layers

    def key(self) -> str:
        """The bits as text, one character a unit (1 = full), layers separated by dots: a stable name for a mask. A
        layer whose sliding units have a window of their own ends with it, as in `1001.011@256.111`."""
        return ".".join(map(self._layer_key, range(self.layout.num_layers)))

    def _layer_key(self, layer: int) -> str:
        row, window = self.full[layer], self.window_of(layer)
        own_window = "" if all(row) or window == self.window else f"@{window}"
        return "".join("01"[value] for value in row) + own_window

    def to_json(self, provenance: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The mask as plain data, with where it came from."""
        layer_windows = {"layer_windows": list(self.layer_windows)} if self.layer_windows else {}
        return {
            "schema": LAYER_WINDOWS_SCHEMA if self.layer_windows else MASK_SCHEMA,
            "num_layers": self.layout.num_layers,
            "units_per_layer": list(self.layout.units_per_layer),
            "window": self.window,
            **layer_windows,
            "sinks": self.sinks,
            "ratio": self.ratio,
            "full": [list(row) for row in self.full],
            "provenance": dict(provenance or {}),
        }

    @classmethod
    def from_json(cls, data: Any, layout: HeadLayout | None = None) -> "HeadMask":
        """A mask from plain data; with a layout, only a mask made for that layout is accepted.

        Raises:
            BoschError: anything is missing, of the wrong type, out of range, or of another model shape.
        """
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        needed = {"units_per_layer", "window", "sinks", "full"}
        if found == LAYER_WINDOWS_SCHEMA:
            needed |= {"layer_windows"}
        elif found != MASK_SCHEMA:
            raise BoschError(f"not a mask file: expected an object with schema {MASK_SCHEMA!r}, found {found!r}")
        missing = sorted(needed - data.keys())
        if missing:
            raise BoschError(f"the mask file lacks {', '.join(missing)}")
        counts, rows = data["units_per_layer"], data["full"]
        if not isinstance(counts, list) or not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise BoschError("the mask file's units_per_layer must be a list and its full a list of lists")
        found_layout = HeadLayout(tuple(counts))
        if layout is not None and found_layout != layout:
            raise BoschError(f"the mask was made for a model with {found_layout}, but this model has {layout}")
        windows = data["layer_windows"] if found == LAYER_WINDOWS_SCHEMA else []
        if not isinstance(windows, list):
            raise BoschError("the mask file's layer_windows must be a list")
        full = tuple(tuple(row) for row in rows)
        return cls(found_layout, full, data["window"], data["sinks"], tuple(windows))

    def save(self, path: str | Path, provenance: Mapping[str, Any] | None = None) -> None:
        """Write `mask.json`, atomically."""
        write_json(to_path(path), self.to_json(provenance))

    @classmethod
    def load(cls, path: str | Path, layout: HeadLayout | None = None) -> "HeadMask":
        """Read a mask file as data; nothing in it is executed.

        Raises:
            BoschError: the file cannot be read, is not JSON, or is refused by `from_json`; the path is named.
        """
        data = read_json(to_path(path))
        try:
            return cls.from_json(data, layout)
        except BoschError as error:
            raise BoschError(f"{path}: {error}") from None

    def __str__(self) -> str:
        share = f"{self.num_localized} of {self.layout.num_units} KV heads sliding"
        return f"{share} (ratio {self.ratio:.3f}, window {self.shown_window})"


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"rows of {json.dumps(list(shape))} units in {len(shape)} layers"
