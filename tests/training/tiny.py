"""A tiny hybrid and a tiny corpus, and a training of a few steps."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from bosch.calibration import Example, ExampleSet
from bosch.decoder import Decoder
from bosch.heads import HeadMask
from bosch.training.packing import PackedSequences
from bosch.training.settings import TrainSettings
from bosch.training.train import train
from families import make_model

LENGTH = 24
WINDOW = 4
SETTINGS: dict[str, Any] = {
    "tokens": 8 * 4 * LENGTH,
    "tokens_per_step": 4 * LENGTH,
    "micro_batch": 2,
    "learning_rate": 1e-2,
    "save_every": 2 * 4 * LENGTH,
    "precision": "float32",
}


def pack(documents: Iterable[Sequence[int]], length: int, *, documents_apart: bool = False) -> PackedSequences:
    """Documents that are in memory, every token of them a target."""
    rows = [np.asarray(document, dtype=np.int64) for document in documents]
    starts = np.cumsum([0, *map(len, rows)])[:-1]
    tokens = np.concatenate([np.empty(0, np.int64), *rows])
    return PackedSequences(tokens, starts, starts, length, documents_apart, int(tokens.max(initial=0)))


def make_sequences(documents_apart: bool = False) -> PackedSequences:
    """17 sequences of texts that count upwards: easy to learn."""
    generator = torch.Generator().manual_seed(0)
    documents = []
    while sum(map(len, documents)) < 17 * LENGTH:
        first, size = torch.randint(1, 40, (2,), generator=generator).tolist()
        documents.append([*range(first, first + size), 0])
    return pack(documents, LENGTH, documents_apart=documents_apart)


def make_examples() -> ExampleSet:
    """Five, which two processes cannot share evenly: after a number, the two that follow."""
    rows = [tuple(range(first, first + size)) for first, size in ((3, 7), (20, 9), (11, 7), (40, 8), (30, 9))]
    examples = [Example(row, len(row) - 2, 0, "counting", len(row), 0.0, "", "") for row in rows]
    return ExampleSet(tuple(examples))


def tiny_model(dtype: torch.dtype = torch.float64, **changes: object) -> PreTrainedModel:
    return make_model("llama", dtype, **{"initializer_range": 0.1, "num_hidden_layers": 2} | changes)


@contextlib.contextmanager
def hybrid(model: PreTrainedModel) -> Iterator[Decoder]:
    """Two of four units full, the others with window 4 and two sinks."""
    decoder = Decoder(model)
    mask = HeadMask.all_sliding(decoder.layout, WINDOW, sinks=2).assign({(0, 0): True, (1, 1): True})
    with decoder.hybrid(mask):
        yield decoder


def train_tiny(output: Path, model: PreTrainedModel | None = None, apart: bool = True, **options: Any) -> Path:
    """Settings among the options, the rest is handed on."""
    settings = {name: options.pop(name) for name in list(options) if name in TrainSettings.__dataclass_fields__}
    model = tiny_model() if model is None else model
    sequences = options.pop("sequences", None) or make_sequences(apart)
    with hybrid(model):
        return train(
            model,
            sequences,
            TrainSettings(**SETTINGS | settings),
            output,
            **{"subject": {"text": "counting"}} | options,
        )
