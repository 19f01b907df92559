"""KV cache specs that say which pages a head's tokens lie in: vLLM keeps specs that differ in a field apart."""

import dataclasses
from typing import Self

from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, SlidingWindowSpec, replace_as

from bosch.serving.placement import Pages


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullPages(FullAttentionSpec):
    """Pages for all tokens."""

    bucket: int

    @classmethod
    def merge(cls, specs: list[Self]) -> Self:
        """One spec for several heads; an `AssertionError`, as vLLM expects, where these are of different buckets."""
        assert all(spec == specs[0] for spec in specs), "heads of different buckets are no group"
        return specs[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlidingPages(SlidingWindowSpec):
    """Pages that are given back once the window has passed them."""

    bucket: int


def placed(spec: AttentionSpec, pages: Pages, block_size: int) -> AttentionSpec:
    """A head's own spec, changed to the pages it lies in.

    Args:
        spec: of vLLM's `Attention`, for the head's own window.
        pages: held as long as the head needs, or longer.
        block_size: of full heads, in tokens.
    """
    if pages.window is not None:
        return replace_as(spec, SlidingPages, sliding_window=pages.window, bucket=pages.bucket)
    drop = () if isinstance(spec, FullAttentionSpec) else ("sliding_window", "extra_retained_tokens")
    return replace_as(spec, FullPages, drop=drop, block_size=block_size, bucket=pages.bucket)
