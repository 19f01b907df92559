"""The attention kernels, fastest first, and the choice of one."""

import dataclasses
from collections.abc import Callable

from torch import Tensor

from bosch.attention import banded, dense, flash, flex, sdpa
from bosch.attention.call import AttentionCall
from bosch.attention.documents import attend_documents
from bosch.attention.padding import AttendFunction, attend_rows, real_spans

__all__ = ["KERNELS", "AttentionCall", "Kernel", "attend"]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One way to compute attention.

    Args:
        name: for tests and messages.
        supports: whether it can serve a query (B, G, R, Tq, D), a value (B, G, Tk, Dv) and a call.
        attend: query (B, G, R, Tq, D), key (B, G, Tk, D), value (B, G, Tk, Dv), call -> (B, G, R, Tq, Dv).
    """

    name: str
    supports: Callable[[Tensor, Tensor, AttentionCall], bool]
    attend: AttendFunction


KERNELS = (
    Kernel("flash", flash.supports, flash.attend),
    Kernel("banded", banded.supports, banded.attend),
    Kernel("sdpa", sdpa.supports, sdpa.attend),
    Kernel("flex", flex.supports, flex.attend),
    Kernel("dense", dense.supports, dense.attend),
)


def attend(query: Tensor, key: Tensor, value: Tensor, call: AttentionCall) -> Tensor:
    """Attention by the first kernel that supports the call.

    Args:
        query: (B, G, R, Tq, D).
        key: (B, G, Tk, D), Tk >= Tq.
        value: (B, G, Tk, Dv).
        call: scaling, visibility and variants.

    Returns:
        (B, G, R, Tq, Dv), finite everywhere; a padding query's output is of no use.
    """
    spans = real_spans(query, call)
    if spans is not None:
        return attend_rows(attend, query, key, value, call, spans)
    if call.documents is not None:
        return attend_documents(attend, query, key, value, call)
    kernel = next(kernel for kernel in KERNELS if kernel.supports(query, value, call))
    return kernel.attend(query, key, value, call)
