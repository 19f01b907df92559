"""How much vLLM holds in the same memory: a model with all heads full against hybrids of it.

    .venv-vllm/bin/python benchmarks/serving.py [--length 4096] [--chunk 256]

The model has the KV cache of SmolLM2-135M (30 layers of 3 KV heads, D = 64, float32) and narrow random layers
otherwise, so that only vLLM's memory is at work. Which heads slide is drawn at random. Prints a table: tokens and
requests of the full length that vLLM says fit into 1 GiB, their quotient by the plain model's, the same by the
formula, and how many requests of 516 tokens and 200 new ones really run at once in 100 MiB.
"""

import argparse
import gc
import json
import logging
import os
import random
import tempfile
from pathlib import Path
from typing import Any

LAYERS, GROUPS = 30, 3
PROMPT, NEW, REQUESTS = 516, 200, 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=4096, help="tokens of the longest request")
    parser.add_argument("--chunk", type=int, default=256, help="tokens of a step, at most")
    options = parser.parse_args()
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR"
    )
    print("| mask | tokens | requests | of plain | formula | share of it | at once |\n| --- |" + " --- |" * 6)
    with tempfile.TemporaryDirectory() as directory:
        write_model(Path(directory), options.length)
        plain = measure(directory, {}, options)
        print(f"| all full | {plain['tokens']:,} | {plain['requests']:.2f} | | | | {plain['at_once']} |", flush=True)
        for window in (64, 256):
            for ratio in (0.5, 0.75):
                row = measure(directory, hybrid(ratio, window), options)
                gain = row["tokens"] / plain["tokens"]
                formula = 1 / (1 - ratio + ratio * window / options.length)
                print(
                    f"| {ratio}, W = {window} | {row['tokens']:,} | {row['requests']:.2f} | {gain:.2f} | {formula:.2f} "
                    f"| {gain / formula:.2f} | {row['at_once']} |",
                    flush=True,
                )


def write_model(directory: Path, length: int) -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=128, hidden_size=192, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=GROUPS,
        num_key_value_heads=GROUPS, head_dim=64, max_position_embeddings=length, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    config.save_pretrained(directory)


def hybrid(ratio: float, window: int) -> dict[str, Any]:
    """What makes a hybrid of the model: its class, and a random mask."""
    from bosch.heads import HeadLayout, HeadMask

    mask = HeadMask.all_full(HeadLayout((GROUPS,) * LAYERS), window)
    units = random.Random(0).sample(list(mask.layout.units()), mask.layout.num_localized(ratio))
    return {"architectures": ["BoschLlamaForCausalLM"], "bosch": json.loads(json.dumps(mask.localize(units).to_json()))}


def measure(directory: str, overrides: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    with_gibibyte = engine(directory, overrides, options, 1 << 30)
    cache = with_gibibyte.llm_engine.vllm_config.cache_config
    row = {"tokens": cache.kv_cache_size_tokens, "requests": cache.kv_cache_max_concurrency}
    close(with_gibibyte)
    small = engine(directory, overrides, argparse.Namespace(length=1024, chunk=options.chunk), 100 << 20)
    row["at_once"] = most_at_once(small)
    close(small)
    return row


def engine(directory: str, overrides: dict[str, Any], options: argparse.Namespace, memory: int) -> Any:
    from vllm import LLM

    logging.disable(logging.WARNING)
    return LLM(
        model=directory, hf_overrides=overrides, load_format="dummy", skip_tokenizer_init=True, dtype="float32",
        enforce_eager=True, block_size=32, max_model_len=options.length, max_num_batched_tokens=options.chunk,
        max_num_seqs=REQUESTS, enable_prefix_caching=False, kv_cache_memory_bytes=memory,
    )  # fmt: skip


def most_at_once(llm: Any) -> int:
    """How many requests are past their prompt in the same step, while all of them come in."""
    from vllm import SamplingParams

    core, most = llm.llm_engine.engine_core.engine_core, 0
    for number in range(REQUESTS):
        prompt = [1 + number] + [7] * (PROMPT - 1)
        wanted = SamplingParams(max_tokens=NEW, min_tokens=NEW, ignore_eos=True, detokenize=False)
        llm.llm_engine.add_request(str(number), {"prompt_token_ids": prompt}, wanted)
    for _ in range(REQUESTS * 3):
        llm.llm_engine.step()
        most = max(most, sum(request.num_computed_tokens >= PROMPT for request in core.scheduler.running))
    return most


def close(llm: Any) -> None:
    from vllm.distributed import cleanup_dist_env_and_memory

    llm.llm_engine.engine_core.shutdown()
    del llm
    cleanup_dist_env_and_memory()
    gc.collect()


if __name__ == "__main__":
    main()
