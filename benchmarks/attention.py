"""Time of a hybrid attention forward against full attention as transformers computes it.

    python benchmarks/attention.py [--tokens 4096] [--window 256] [--repeats 9] [--threads 1]

The baseline repeats keys and values to all query heads and calls `scaled_dot_product_attention`, as transformers'
"sdpa" does. A hybrid forward splits the KV groups as search mode does: full ones through the SDPA kernel, sliding
ones through the banded kernel, gathering and putting back included. All variants are timed in turn within each
repeat, so that a busy machine slows them alike; the ratio printed is the median of the repeats' own ratios.

The bound is the operation count's: the share of query-key pairs that the definition makes visible,
W(W + 1)/2 + (T - W)W for a sliding head, T(T + 1)/2 for a full one. The last column is the time's ratio to it.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bosch.attention.interface import STATE, AttentionState, attention_forward
from bosch.heads import quota

SHAPES = [(3, 3, 64), (8, 2, 128)]
RATIOS = [0.0, 0.5, 1.0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, T={options.tokens}, W={options.window}, {options.threads} thread(s)")
    header = ("ratio", "sliding", "ms", "full ms", "time", "bound", "to bound")
    print(f"{'heads':<18} {'dtype':<9}", *(f"{name:>8}" for name in header))
    for groups, heads, dim in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            compare(groups, heads, dim, dtype, options)


def compare(groups: int, heads: int, dim: int, dtype: torch.dtype, options: argparse.Namespace) -> None:
    query = torch.randn(1, groups * heads, options.tokens, dim, dtype=dtype)
    key, value = torch.randn(2, 1, groups, options.tokens, dim, dtype=dtype)
    counts = [quota(ratio, groups) for ratio in RATIOS]
    runs = [lambda: stock(query, key, value), *(hybrid(query, key, value, count, options.window) for count in counts)]
    times = interleaved(runs, options.repeats)
    for ratio, count, own in zip(RATIOS, counts, times[1:], strict=True):
        relative = statistics.median(one / full for one, full in zip(own, times[0], strict=True))
        bound = 1 - count / groups * (1 - visible_share(options.tokens, options.window))
        cells = [f"{ratio}", f"{count}/{groups}", f"{statistics.median(own):.1f}", f"{statistics.median(times[0]):.1f}"]
        cells += [f"{relative:.2f}x", f"{bound:.2f}x", f"{relative / bound:.2f}"]
        print(f"{f'G={groups} R={heads} D={dim}':<18} {str(dtype)[6:]:<9}", *(f"{cell:>8}" for cell in cells))


def stock(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    heads = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(heads, dim=1), value.repeat_interleave(heads, dim=1)
    return scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).contiguous()


def hybrid(query: Tensor, key: Tensor, value: Tensor, num_sliding: int, window: int) -> Callable[[], Tensor]:
    groups = key.shape[1]
    module = torch.nn.Module()
    # Sliding groups spread over the layer, so that gathering them is not a plain slice.
    full = tuple(group * num_sliding % groups >= num_sliding for group in range(groups))
    setattr(module, STATE, AttentionState(full=full, window=window))
    return lambda: attention_forward(module, query, key, value, None)[0].contiguous()


def visible_share(num_tokens: int, window: int) -> float:
    """Visible query-key pairs of a sliding head, as a share of those of a full one."""
    window = min(window, num_tokens)
    sliding = window * (window + 1) // 2 + (num_tokens - window) * window
    return sliding / (num_tokens * (num_tokens + 1) // 2)


def interleaved(runs: list[Callable[[], Tensor]], repeats: int) -> list[list[float]]:
    """Milliseconds of each run in each repeat, after one untimed round."""
    times: list[list[float]] = [[] for _ in runs]
    for repeat in range(repeats + 1):
        for run, own in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            if repeat:
                own.append((time.perf_counter() - start) * 1e3)
    return times


if __name__ == "__main__":
    with torch.inference_mode():
        main()
