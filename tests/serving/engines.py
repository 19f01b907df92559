"""Checkpoints of small hybrids, what transformers makes of them, and vLLM's engine in this process."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from bosch.deploy.hybridize import hybridize
from bosch.deploy.layers import attention_layers, layout_of
from bosch.heads import HeadMask
from families import make_model

Tokens = list[int]

SIZES = {
    "hidden_size": 192,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 32,  # the smallest that vLLM's kernel for CPUs takes
    "max_position_embeddings": 2048,
    "num_hidden_layers": 5,
}
NATIVE = {  # families with layers that slide by themselves: whole, beside those that a mask switches
    "gemma2": {
        "num_hidden_layers": 4,
        "sliding_window": 48,
        "query_pre_attn_scalar": 32,
        "tie_word_embeddings": True,  # vLLM knows no other
    },
    "gemma3": {"num_hidden_layers": 4, "sliding_window": 48},
}
OPTIONS = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 2048,
    "block_size": 32,
    "max_num_batched_tokens": 512,
    "max_num_seqs": 8,
    "skip_tokenizer_init": True,
    "kv_cache_memory_bytes": 256 << 20,
    "enable_prefix_caching": False,
    "seed": 0,
}
LENGTHS = (1, 2, 15, 33, 64, 257, 1000)


def stock_model(family: str) -> PreTrainedModel:
    """A random model in float32 that generates without an end."""
    model = make_model(family, **(SIZES | NATIVE.get(family, {})))
    model.generation_config.update(eos_token_id=None, pad_token_id=0, bos_token_id=1, do_sample=False)
    return model


def some_mask(model: PreTrainedModel, ratio: float = 0.5, windows: Sequence[int] = (40,), seed: int = 1) -> HeadMask:
    """Random units sliding; the layers have these windows in turn."""
    layout = layout_of(attention_layers(model))
    mask = HeadMask.all_full(layout, min(windows))
    if len(windows) > 1:
        for layer in range(layout.num_layers):
            mask = mask.give_window(windows[layer % len(windows)], [layer])
    order = torch.randperm(layout.num_units, generator=torch.Generator().manual_seed(seed)).tolist()
    units = list(layout.units())
    return mask.localize(units[place] for place in order[: layout.num_localized(ratio)])


def prompts(lengths: Sequence[int] = LENGTHS, seed: int = 0) -> list[Tokens]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, 97, (length,), generator=generator).tolist() for length in lengths]


@torch.no_grad()
def expected(model: PreTrainedModel, prompts: Sequence[Tokens], count: int) -> list[Tokens]:
    """What transformers generates greedily, prompt by prompt."""
    found = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=False
        )
        found.append(output[0, len(prompt) :].tolist())
    return found


def write_hybrid(family: str, mask_options: dict[str, Any], path: Path) -> PreTrainedModel:
    """A live hybrid, and its checkpoint in a directory."""
    model = stock_model(family)
    hybrid = hybridize(model, some_mask(model, **mask_options))
    hybrid.save_pretrained(path)
    return hybrid


@contextmanager
def engine(path: Path, **options: Any) -> Iterator[Any]:
    """vLLM's `LLM` on a checkpoint, in this process."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    llm = LLM(model=str(path), **{**OPTIONS, **options})
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()
        gc.collect()


def greedy(count: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=count, min_tokens=count, ignore_eos=True, detokenize=False)


def generate(llm: Any, prompts: Sequence[Tokens], count: int) -> list[Tokens]:
    """What vLLM generates greedily, in one batch."""
    inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
    return [list(output.outputs[0].token_ids) for output in llm.generate(inputs, greedy(count), use_tqdm=False)]
