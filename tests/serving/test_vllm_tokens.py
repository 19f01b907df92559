"""Greedy tokens of vLLM in float32 against those of transformers' hybrid, whose own reference are dense masks."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from engines import engine, expected, generate, greedy, prompts, some_mask, stock_model, write_hybrid
from transformers import AutoModelForCausalLM

from bosch.deploy import modeling_bosch
from bosch.deploy.hybridize import hybridize
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.serving.heads import FAMILIES
from bosch.serving.models import SPREADING, check_parallel
from bosch.serving.plugin import register

NEW = 24
EXPORT = Path(__file__).parents[2] / ".venv-vllm" / "smollm2-hybrid"  # of `make test-vllm`
TWO_WINDOWS = {"windows": (16, 40)}
NAMES = {"gemma3_text": "gemma3"}  # in tests/families.py


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A Llama hybrid of two windows: its checkpoint, the model, and its tokens."""
    path = tmp_path_factory.mktemp("llama")
    model = write_hybrid("llama", TWO_WINDOWS, path)
    return SimpleNamespace(path=path, model=model, tokens=expected(model, prompts(), NEW))


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_family(model_type, tmp_path):
    model = write_hybrid(NAMES.get(model_type, model_type), TWO_WINDOWS, tmp_path)
    batch = prompts((2, 33, 300))
    tokens = expected(
        model, batch, NEW
    )  # first: vLLM changes the classes of families that it runs as transformers does
    with engine(tmp_path, max_num_batched_tokens=96) as llm:
        assert generate(llm, batch, NEW) == tokens


@pytest.mark.parametrize("chunk", [24, 512])  # between the windows, and above both
def test_chunks_of_a_batch_of_many_lengths(small, chunk):
    with engine(small.path, max_num_batched_tokens=chunk) as llm:
        assert generate(llm, prompts(), NEW) == small.tokens


@pytest.mark.parametrize("windows", [(1, 2), (32, 33), (1500, 5000)])  # tokens in a block: 32
def test_windows_at_their_bounds(windows, tmp_path):
    model = write_hybrid("llama", {"windows": windows}, tmp_path)
    with engine(tmp_path, max_num_batched_tokens=96) as llm:
        assert generate(llm, prompts(), NEW) == expected(model, prompts(), NEW)


def test_prompts_at_once(small):
    with engine(small.path, max_num_batched_tokens=2048, enable_chunked_prefill=False) as llm:
        assert generate(llm, prompts(), NEW) == small.tokens


def test_a_prefix_that_is_cached(small):
    """Prompts again, and one that leaves another's way in the middle. Of a sliding head vLLM keeps the pages at the end
    of a prompt, and in between only where it is asked to."""
    [long] = prompts((1000,), seed=3)
    other = long[:700] + prompts((90,), seed=4)[0]
    with engine(small.path, enable_prefix_caching=True, prefix_cache_retention_interval=64) as llm:
        assert generate(llm, prompts(), NEW) == small.tokens
        again = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts()], greedy(NEW), use_tqdm=False)
        generate(llm, [long], 1)
        [parted] = llm.generate([{"prompt_token_ids": other}], greedy(NEW), use_tqdm=False)
    assert again[-1].num_cached_tokens >= 900
    assert [list(output.outputs[0].token_ids) for output in again] == small.tokens
    assert parted.num_cached_tokens >= 600
    assert [list(parted.outputs[0].token_ids)] == expected(small.model, [other], NEW)


def test_requests_that_are_preempted(small):
    """Room for each request alone and not for all of them: some start again, and come out the same."""
    same_length = prompts((200,) * 6, seed=5)
    with engine(small.path, num_gpu_blocks_override=130, max_model_len=512, max_num_batched_tokens=64) as llm:
        steps = running(llm, same_length, 150)
        preemptions = max(request.num_preemptions for requests in steps for request in requests)
        assert preemptions > 0
        assert tokens_of(steps) == expected(small.model, same_length, 150)


def test_a_request_that_is_aborted(small):
    """Its pages come back, and the others do not notice."""
    three = prompts((300, 200, 100), seed=6)
    with engine(small.path, max_num_batched_tokens=64) as llm:
        pool = core(llm).scheduler.kv_cache_manager.block_pool
        free = pool.get_num_free_blocks()
        steps = running(llm, three, NEW, abort_after=8)
        assert pool.get_num_free_blocks() == free
    first, third = expected(small.model, [three[0], three[2]], NEW)
    found = tokens_of(steps)
    assert (found[0], found[2]) == (first, third)
    assert len(found[1]) < NEW


def test_many_new_tokens(small):
    [prompt] = prompts((50,), seed=7)
    with engine(small.path) as llm:
        assert generate(llm, [prompt], 200) == expected(small.model, [prompt], 200)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_all_heads_alike(ratio, tmp_path):
    model = write_hybrid("qwen3", {"ratio": ratio, "windows": (16,)}, tmp_path)
    with engine(tmp_path) as llm:
        assert generate(llm, prompts(), NEW) == expected(model, prompts(), NEW)


def test_heads_in_pages_that_are_held_longer_than_they_need(tmp_path):
    """1 full head of 15 makes no group of its own size: sliding heads fill it up, and still forget."""
    model = write_hybrid("qwen3", {"ratio": 14 / 15, "windows": (16,)}, tmp_path)
    with engine(tmp_path, max_num_batched_tokens=64) as llm:
        heads = [head for layer in layers_of(llm) for head in layer.heads]
        assert sum(head.sliding_window is None for head in heads) == 1
        assert sum(head.pages.window is None for head in heads) > 1
        assert generate(llm, prompts(), NEW) == expected(model, prompts(), NEW)


def test_traced_by_dynamo(small):
    with engine(small.path, enforce_eager=False) as llm:
        assert generate(llm, prompts(), NEW) == small.tokens


def test_without_the_hybrid_manager_it_is_right_and_says_that_nothing_is_saved(small, caplog):
    logging.getLogger("vllm.bosch").addHandler(caplog.handler)
    with engine(small.path, disable_hybrid_kv_cache_manager=True) as llm:
        assert generate(llm, prompts(), NEW) == small.tokens
        assert len(core(llm).scheduler.kv_cache_config.kv_cache_groups) == 1
    assert "No memory is saved" in caplog.text


def test_a_mask_on_the_checkpoint_as_it_was(tmp_path):
    """No export: heads are chosen by number, and the weights stay in their order."""
    model = stock_model("llama")
    mask = some_mask(model, **TWO_WINDOWS)
    model.save_pretrained(tmp_path)
    overrides = {"architectures": ["BoschLlamaForCausalLM"], "bosch": mask.to_json()}
    assert any(list(row) != sorted(row, reverse=True) for row in mask.full)
    with engine(tmp_path, hf_overrides=overrides) as llm:
        assert generate(llm, prompts(), NEW) == expected(hybridize(model, mask), prompts(), NEW)


def test_a_mask_of_other_layers_is_refused(tmp_path):
    model = stock_model("llama")
    mask = some_mask(stock_model("gemma2"))
    model.save_pretrained(tmp_path)
    overrides = {"architectures": ["BoschLlamaForCausalLM"], "bosch": mask.to_json()}
    with (
        pytest.raises(BoschError, match="has 4 layers, but vLLM's model has 5"),
        engine(tmp_path, hf_overrides=overrides),
    ):
        pass


def test_a_mask_over_layers_that_slide_by_themselves_is_refused(tmp_path):
    stock_model("gemma2").save_pretrained(tmp_path)
    mask = HeadMask.all_full(HeadLayout((3,) * 4), 16)
    overrides = {"architectures": ["BoschGemma2ForCausalLM"], "bosch": mask.to_json()}
    with pytest.raises(BoschError, match="slides by itself over 48"), engine(tmp_path, hf_overrides=overrides):
        pass


def test_sinks_are_refused_before_anything_is_loaded(tmp_path):
    model = stock_model("llama")
    mask = some_mask(model)
    hybridize(model, type(mask)(mask.layout, mask.full, mask.window, sinks=4)).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="keep 4 sinks"), engine(tmp_path):
        pass


@pytest.mark.parametrize("name", SPREADING)
def test_requests_over_several_processes_are_refused(name):
    sizes = dict.fromkeys(SPREADING, 1)
    check_parallel(SimpleNamespace(parallel_config=SimpleNamespace(**sizes)))
    with pytest.raises(BoschError, match=f"{name}=2"):
        check_parallel(SimpleNamespace(parallel_config=SimpleNamespace(**{**sizes, name: 2})))


@pytest.mark.real_model
def test_the_demos_mask_on_smollm2():
    """The real model as `bosch export` wrote it, elsewhere: in a batch, from its own cache, and long."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(EXPORT)
    model = modeling_bosch.BoschLlamaForCausalLM.from_pretrained(EXPORT, dtype=torch.float32).eval()
    ids = tokenizer("Once upon a time there was a quiet river, and a girl who walked along it every day. " * 60)[
        "input_ids"
    ]
    batch = [ids[:length] for length in (1, 5, 60, 200, 1000)]
    tokens, [long] = expected(model, batch, NEW), expected(model, [ids[:40]], 100)
    with engine(EXPORT, enable_prefix_caching=True) as llm:
        assert generate(llm, batch, NEW) == tokens
        assert generate(llm, batch, NEW) == tokens
        assert generate(llm, [ids[:40]], 100) == [long]


def test_transformers_does_not_take_a_hybrid_for_the_original(small):
    """vLLM's process knows the type; loading it there as a stock model would attend to everything in silence."""
    register()
    with pytest.raises(ValueError, match="trust_remote_code"):
        AutoModelForCausalLM.from_pretrained(small.path)


def core(llm):
    return llm.llm_engine.engine_core.engine_core


def layers_of(llm):
    model = llm.llm_engine.model_executor.driver_worker.worker.model_runner.model
    return [module.attn for module in model.modules() if hasattr(getattr(module, "attn", None), "heads")]


def running(llm, inputs, count, abort_after=None):
    """All requests step by step until they are done, the second one aborted on the way; what ran in each step."""
    llm_engine, steps = llm.llm_engine, []
    for number, prompt in enumerate(inputs):
        llm_engine.add_request(str(number), {"prompt_token_ids": prompt}, greedy(count))
    while llm_engine.has_unfinished_requests():
        steps.append(list(core(llm).scheduler.requests.values()))
        llm_engine.step()
        if len(steps) == abort_after:
            llm_engine.abort_request(["1"])
    return steps


def tokens_of(steps):
    """The new tokens of every request, in the order in which they came."""
    requests = {request.request_id: request for requests in steps for request in requests}
    return [list(request.output_token_ids) for _, request in sorted(requests.items())]
