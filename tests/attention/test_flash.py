"""FlashAttention without a GPU: when it is taken, what it is told, and what happens when it is missing or broken."""

import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bosch.attention import dense, flash
from bosch.attention.kernels import AttentionCall


@pytest.fixture(autouse=True)
def fresh_lookup() -> Iterator[None]:
    flash.flash_function.cache_clear()
    yield
    flash.flash_function.cache_clear()


def test_a_broken_flash_attn_costs_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Availability checked by name only would fail at the first call, or at our import."""
    (tmp_path / "flash_attn.py").write_text("raise OSError('undefined symbol: _ZN3c10')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match="flash_attn is installed but cannot be imported.*undefined symbol"):
        assert flash.flash_function() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert flash.flash_function() is None


def test_our_import_does_not_touch_a_broken_flash_attn(tmp_path: Path) -> None:
    (tmp_path / "flash_attn.py").write_text("raise OSError('undefined symbol')")
    code = "import bosch.attention.kernels, sys; assert 'flash_attn' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env={"PYTHONPATH": str(tmp_path)})


class HalfOnCuda:
    """The three facts about a query or a value that `supports` asks for."""

    is_cuda = True
    dtype = torch.bfloat16

    def __init__(self, head_dim: int = 64) -> None:
        self.shape = (1, 2, 3, 5, head_dim)


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float, causal: bool, window_size: tuple[int, int]
) -> Tensor:
    """A stand-in with FlashAttention's conventions: (B, T, H, D), last query at the last key, keys to the left."""
    assert causal
    left, right = window_size
    distance = torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None] - torch.arange(k.shape[1])
    visible = (distance >= 0) & ((distance <= left) | (left < 0)) & ((-distance <= right) | (right < 0))
    k, v = (tensor.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for tensor in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * softmax_scale
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(~visible, -torch.inf).softmax(-1), v)


@pytest.mark.parametrize("name", flash.MODULES)
@pytest.mark.parametrize("window", [None, 1, 4])
def test_arguments_say_the_same_as_the_call(name: str, window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType(name)
    module.flash_attn_func = flash_attn_func
    module.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, name, module)
    query, key, value = torch.randn(2, 3, 5, 7, 11), torch.randn(2, 3, 13, 11), torch.randn(2, 3, 13, 11)
    call = AttentionCall(0.3, window)
    torch.testing.assert_close(flash.attend(query, key, value, call), dense.attend(query, key, value, call))


def test_only_what_it_can_do_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash, "flash_function", lambda: flash_attn_func)
    real = torch.ones(1, 5, dtype=torch.bool)
    can = [AttentionCall(0.3), AttentionCall(0.3, 4), AttentionCall(0.3, sinks=2)]
    cannot = [
        AttentionCall(0.3, 4, sinks=2),
        AttentionCall(0.3, padding=real),
        AttentionCall(0.3, positions=torch.arange(5)[None]),
        AttentionCall(0.3, allowed=real[:, None, None]),
        AttentionCall(0.3, softcap=1.7),  # this version has no such parameter
        AttentionCall(0.3, sink_logits=torch.zeros(2, 3)),
    ]
    assert all(flash.supports(HalfOnCuda(), HalfOnCuda(), call) for call in can)
    assert not any(flash.supports(HalfOnCuda(), HalfOnCuda(), call) for call in cannot)
    assert not flash.supports(torch.zeros(1, 2, 3, 5, 64), torch.zeros(1, 2, 5, 64), AttentionCall(0.3))
    assert not flash.supports(HalfOnCuda(), HalfOnCuda(32), AttentionCall(0.3))
    assert not flash.supports(HalfOnCuda(512), HalfOnCuda(512), AttentionCall(0.3))
    monkeypatch.setattr(flash, "flash_function", lambda: lambda softcap: None)
    assert flash.supports(HalfOnCuda(), HalfOnCuda(), AttentionCall(0.3, softcap=1.7))
