"""One attention call: everything but queries, keys and values."""

import dataclasses

from torch import Tensor


@dataclasses.dataclass(frozen=True)
class AttentionCall:
    """How a set of queries attends to a set of keys; what each query may see is defined in `visibility`.

    Shapes: B batch, Tq queries, Tk keys, G KV groups, R query heads per group. Positions are key indices, 0..Tk-1.

    Args:
        scaling: factor on the dot products.
        window: W, in tokens: a query at position i sees keys j with i - W < j <= i, itself included; None = full.
        sinks: S, in tokens: the first S real tokens stay visible past the window; without a window, no effect.
        softcap: c: scores become c * tanh(score / c) before the softmax (Gemma 2).
        sink_logits: (G, R), learned attention sinks (GPT-OSS): one more softmax column that has no value.
        padding: (B, Tk) bool, True = real token; None = all real.
        positions: (B, Tq) int64, the key index of each query; None = the queries are the last Tq of the Tk keys.
        allowed: (B or 1, 1, Tq, Tk) bool, takes the place of the causal rule; window and padding come on top.
        documents: (B, Tk) int64, rising along the row: which document of a packed row each key belongs to; a query sees
            keys of its own document only. On the CPU, so that reading it never waits for a GPU. None = one document.
    """

    scaling: float
    window: int | None = None
    sinks: int = 0
    softcap: float | None = None
    sink_logits: Tensor | None = None
    padding: Tensor | None = None
    positions: Tensor | None = None
    allowed: Tensor | None = None
    documents: Tensor | None = None

    def __post_init__(self) -> None:
        assert self.window is None or self.window >= 1, f"window must be at least 1, got {self.window}"
        assert self.sinks >= 0, f"sinks must be at least 0, got {self.sinks}"

    @property
    def is_plain(self) -> bool:
        """Whether visibility follows from the indices alone: causal, no padding, one document, the queries last."""
        return all(given is None for given in (self.padding, self.positions, self.allowed, self.documents))
