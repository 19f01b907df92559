"""Time of a deployed hybrid against the stock model with transformers' own DynamicCache and "sdpa" attention.

    python benchmarks/deploy.py [--models smollm2-135m,qwen3] [--tokens 1024,4096,16384] [--window 256] [--parts ...]

The models are SmolLM2-135M and a random Qwen3 of 12 layers with 8 KV heads. Stock model and hybrids share their
weights; the sliding heads are spread evenly over the layers. Caches are filled with random keys and values, so that a
step after 16384 tokens can be timed without such a prompt.

    decode-attention    what the attention of all layers takes for one token: to store it, and to attend to the cache
    decode              one whole step
    prefill-attention   what the attention of all layers takes for a prompt, the cache filled on the way
    prefill             a whole prompt (slow: not by default)

All variants are timed in turn within each repeat, so that a busy machine slows them alike; a ratio of times is the
median of the repeats' own ratios. The bound is what is left to do beside ratio 0: of decoding, the bytes of keys and
values that are read, full * T + sliding * min(T, W); of a prompt, the visible pairs of query and key. The last column
is the bound divided by the time beside ratio 0: 1.00 is all there is to be had. A whole model does more than attend,
so it has no bound.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from bosch.deploy import hybridize
from bosch.deploy.layers import attention_layers, layout_of
from bosch.deploy.modeling_bosch import BoschMixin, attention_forward
from bosch.heads import HeadLayout, HeadMask, quota
from bosch.models import load_model

STEPS = 8  # tokens decoded one after the other in one timing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2-135m,qwen3")
    parser.add_argument("--tokens", default="1024,2048,4096,8192,16384")
    parser.add_argument("--parts", default="decode-attention,decode,prefill-attention")
    parser.add_argument("--ratios", default="0,0.5,0.75,1", help="0 comes first")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.dtype}, W={options.window}, {options.threads} thread(s)\n")
    print("| model | part | T | ratio | ms | beside stock | beside ratio 0 | bound | share of the bound |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.models.split(","):
        stock = load(name, getattr(torch, options.dtype))
        hybrids = {ratio: make_hybrid(stock, ratio, options.window) for ratio in map(float, options.ratios.split(","))}
        for part in options.parts.split(","):
            for num_tokens in map(int, options.tokens.split(",")):
                runs = [PARTS[part](model, num_tokens) for model in (stock, *hybrids.values())]
                times = interleaved(runs, options.repeats)
                for row in rows(times, hybrids, part, num_tokens, options.window):
                    print(f"| {name} | {part} | {num_tokens} | {row} |", flush=True)


def load(name: str, dtype: torch.dtype) -> PreTrainedModel:
    if name != "qwen3":
        return load_model(name, device="cpu")[0].to(dtype)
    torch.manual_seed(0)
    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 12, "vocab_size": 32_000}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 32_768}
    return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads)).to(dtype).eval()


def make_hybrid(stock: PreTrainedModel, ratio: float, window: int) -> BoschMixin:
    layout = layout_of(attention_layers(stock))
    parameters = {id(parameter): parameter for parameter in stock.parameters()}
    return hybridize(copy.deepcopy(stock, memo=parameters), spread_mask(layout, ratio, window))


def spread_mask(layout: HeadLayout, ratio: float, window: int) -> HeadMask:
    """The same share of every layer, as nearly as its heads allow; full heads first, so that no weight moves."""
    total, rows = quota(ratio, layout.num_units), []
    for layer, count in enumerate(layout.units_per_layer):
        sliding = total * (layer + 1) // layout.num_layers - total * layer // layout.num_layers
        rows.append((True,) * (count - sliding) + (False,) * sliding)
    return HeadMask(layout, tuple(rows), window)


def rows(
    times: list[list[float]], hybrids: dict[float, BoschMixin], part: str, num_tokens: int, window: int
) -> list[str]:
    """A table row for the stock model and one for each ratio."""
    stock, at_zero = times[:2]
    lines = [f"stock | {statistics.median(stock) * 1e3:.2f} | 1.00x | | |"]
    for (ratio, hybrid), own in zip(hybrids.items(), times[1:], strict=True):
        beside_stock, beside_zero = (
            statistics.median(a / b for a, b in zip(own, base, strict=True)) for base in (stock, at_zero)
        )
        left = work(hybrid, part, num_tokens, window)
        bound = f"{left:.3f}x | {left / beside_zero:.2f}" if part.endswith("attention") else " | "
        line = f"{ratio} | {statistics.median(own) * 1e3:.2f} | {beside_stock:.2f}x | {beside_zero:.3f}x | {bound}"
        lines.append(line)
    return lines


def work(hybrid: BoschMixin, part: str, num_tokens: int, window: int) -> float:
    """What is left to read or to multiply, beside a model whose heads are all full."""
    window = min(window, num_tokens)
    sliding = window / num_tokens
    if part.startswith("prefill"):
        sliding = visible_pairs(num_tokens, window) / visible_pairs(num_tokens, None)
    layers = hybrid.config.bosch["layers"]
    full = sum(layer["full"] for layer in layers) / sum(len(layer["heads"]) for layer in layers)
    return full + (1 - full) * sliding


def visible_pairs(num_tokens: int, window: int | None) -> float:
    """Pairs of query and key of one head."""
    window = min(window or num_tokens, num_tokens)
    return window * (window + 1) / 2 + (num_tokens - window) * window


def interleaved(runs: list[Callable[[], float]], repeats: int) -> list[list[float]]:
    """Each run's own times in seconds, the runs taken in turn; the first round is not counted."""
    times = [[run() for run in runs] for _ in range(repeats + 1)][1:]
    return [list(column) for column in zip(*times, strict=True)]


def decode_attention(model: PreTrainedModel, num_tokens: int) -> Callable[[], float]:
    cache = filled_cache(model, num_tokens)
    return timed(lambda: attend_in_all_layers(model, random_heads(model, 1), cache), STEPS)


def prefill_attention(model: PreTrainedModel, num_tokens: int) -> Callable[[], float]:
    heads = random_heads(model, num_tokens)
    return timed(lambda: attend_in_all_layers(model, heads, new_cache(model)))


def decode(model: PreTrainedModel, num_tokens: int) -> Callable[[], float]:
    cache, token = filled_cache(model, num_tokens), torch.ones(1, 1, dtype=torch.int64)
    return timed(lambda: model(input_ids=token, cache=cache), STEPS)


def prefill(model: PreTrainedModel, num_tokens: int) -> Callable[[], float]:
    ids = torch.randint(5, 1000, (1, num_tokens), generator=torch.Generator().manual_seed(0))
    return timed(lambda: model(input_ids=ids, use_cache=True, logits_to_keep=1))


PARTS = {
    "decode-attention": decode_attention,
    "decode": decode,
    "prefill-attention": prefill_attention,
    "prefill": prefill,
}


def timed(call: Callable[[], object], count: int = 1) -> Callable[[], float]:
    """Seconds per call, of so many in a row."""

    def run() -> float:
        started = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - started) / count

    return run


def new_cache(model: PreTrainedModel) -> Cache:
    return model.new_cache() if isinstance(model, BoschMixin) else DynamicCache(config=model.config)


def filled_cache(model: PreTrainedModel, num_tokens: int) -> Cache:
    """As a prompt of that many tokens leaves it, without the attention that the prompt would take."""
    cache = new_cache(model)
    for layer in range(model.config.num_hidden_layers):
        _, key, value = random_heads(model, num_tokens)
        cache.update(key, value, layer)
        for store, (heads, *_) in zip(*parts(cache, layer), strict=True):
            store.extend((key[:, heads], value[:, heads]), None, False)
    return cache


def parts(cache: Cache, layer: int) -> tuple[list, list]:
    """A hybrid's stores and their heads; nothing of the stock cache, which has stored everything by itself."""
    own = cache.layers[layer]
    return getattr(own, "stores", []), getattr(own, "parts", [])


def random_heads(model: PreTrainedModel, num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of one layer."""
    config = model.config
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    counts = config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads
    query, key, value = (torch.randn(1, count, num_tokens, dim, dtype=model.dtype) for count in counts)
    return query, key, value


def attend(model: PreTrainedModel, layer: int, query: Tensor, key: Tensor, value: Tensor, cache: Cache) -> None:
    """What a layer's attention module does between its projections."""
    function = attention_forward if isinstance(model, BoschMixin) else sdpa_attention_forward
    module = model.model.layers[layer].self_attn
    function(module, query, *cache.update(key, value, layer), None, scaling=module.scaling)


def attend_in_all_layers(model: PreTrainedModel, heads: tuple[Tensor, Tensor, Tensor], cache: Cache) -> None:
    for layer in range(model.config.num_hidden_layers):
        attend(model, layer, *heads, cache)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
