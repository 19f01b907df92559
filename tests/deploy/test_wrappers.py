"""Whatever wraps a hybrid, its window stays: a changed token moves the logits of exactly the tokens that it reaches."""

import copy

import pytest
import torch
from dense_reference import dense_hybrid, is_greedy
from stock_models import hybrid_of, left_padded, some_mask, stock_model, tokens
from torch import nn
from torch._dynamo.testing import CompileCounter

from families import make_model

LAYERS, WINDOW, LENGTH = 3, 4, 40


def reach(forward, position: int) -> list[int]:
    """Positions whose logits change with the token at one of them."""
    ids = tokens(1, LENGTH)
    other = ids.clone()
    other[0, position] = ids[0, position] % 96 + 1
    difference = (forward(ids) - forward(other)).detach().abs().amax(-1)[0]
    return (difference > 1e-7).nonzero().flatten().tolist()


@pytest.fixture
def hybrid():
    return copy.deepcopy(hybrid_of(stock_model(), some_mask(stock_model(), WINDOW, ratio=1.0)))


def plain(model):
    return lambda ids: model(ids).logits


def without_cache(model):
    return lambda ids: model(ids, use_cache=False).logits


def training(model):
    model.train()
    return plain(model)


def gradient_checkpointing(model):
    model.gradient_checkpointing_enable()
    return training(model)


def compiled(model):
    return plain(torch.compile(model, backend="eager"))


def offloaded(model):
    accelerate = pytest.importorskip("accelerate")
    return plain(accelerate.cpu_offload(model, execution_device="cpu"))


def with_attentions(model):
    return lambda ids: model(ids, output_attentions=True).logits


def data_parallel(model):
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    return plain(nn.parallel.DistributedDataParallel(model.train()))


WRAPPERS = [
    *(plain, without_cache, training, gradient_checkpointing, offloaded, with_attentions, data_parallel),
    pytest.param(compiled, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_token_reaches_as_far_as_the_windows_of_all_layers(wrap, hybrid):
    try:
        assert reach(wrap(hybrid), 5) == list(range(5, 5 + LAYERS * (WINDOW - 1) + 1))
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def test_sinks_and_full_heads_reach_the_end():
    model = stock_model()
    sliding = hybrid_of(model, some_mask(model, WINDOW, 2, ratio=1.0))
    assert reach(plain(sliding), 1) == list(range(1, LENGTH))
    assert reach(plain(sliding), 2) == list(range(2, 2 + LAYERS * (WINDOW - 1) + 1))
    one_full = hybrid_of(model, some_mask(model, WINDOW, ratio=1.0).assign({(1, 0): True}))
    assert reach(plain(one_full), 5) == list(range(5, LENGTH))
    narrow = hybrid_of(model, some_mask(model, 1, ratio=1.0))
    assert reach(plain(narrow), 5) == [5]


def test_gradients_are_those_of_the_dense_masks():
    model = make_model("qwen3", torch.float64)
    mask = some_mask(model, WINDOW, 2)
    hybrid = copy.deepcopy(hybrid_of(model, mask)).train()
    batch = left_padded(17, 9)
    weight = torch.randn(2, 17, 97, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight *= batch["attention_mask"][:, :, None]
    (hybrid(**batch).logits * weight).sum().backward()
    with dense_hybrid(model, mask):
        (model(**batch, use_cache=False).logits * weight).sum().backward()
    expected, found = (m.model.layers[0].mlp.up_proj.weight.grad for m in (model, hybrid))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_documents_packed_into_one_row_stay_apart():
    """Windows and sinks begin anew with each document."""
    model = stock_model()
    for sinks in (0, 2):
        hybrid = hybrid_of(model, some_mask(model, WINDOW, sinks))
        first, second = tokens(1, 11, seed=1), tokens(1, 17, seed=2)
        packed = torch.cat([first, second], dim=1)
        position_ids = torch.cat([torch.arange(11), torch.arange(17)])[None]
        with torch.no_grad():
            logits = hybrid(packed, position_ids=position_ids, use_cache=False).logits
            torch.testing.assert_close(logits[:, :11], hybrid(first).logits, rtol=0, atol=1e-9)
            torch.testing.assert_close(logits[:, 11:], hybrid(second).logits, rtol=0, atol=1e-9)


def test_dropout_in_attention_is_refused():
    hybrid = copy.deepcopy(hybrid_of(stock_model(), some_mask(stock_model()))).train()
    hybrid.model.layers[1].self_attn.attention_dropout = 0.1
    with pytest.raises(ValueError, match=r"dropout of 0\.1 is not supported"):
        hybrid(tokens(1, 5))


def compiled_decoding(model, mask, batch, backend, num_new):
    """Greedy tokens, each step after the prompt through the compiled model."""
    hybrid = copy.deepcopy(hybrid_of(model, mask))
    step = torch.compile(hybrid, dynamic=True, backend=backend)
    ids, real, cache = batch["input_ids"], batch["attention_mask"], hybrid.new_cache()
    forward = hybrid
    for _ in range(num_new):
        new = ids[:, cache.get_seq_length() :]
        position_ids = (real.cumsum(1) - 1).clamp(min=0)[:, -new.shape[1] :]
        with torch.no_grad():
            logits = forward(new, attention_mask=real, position_ids=position_ids, cache=cache).logits[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        real = torch.cat([real, torch.ones_like(real[:, :1])], dim=1)
        forward = step
    return ids


def check_compiled(model, batch):
    torch._dynamo.reset()
    mask = some_mask(model, WINDOW, 2)
    counter = CompileCounter()
    ids = compiled_decoding(model, mask, batch, counter, 50)
    assert is_greedy(model, mask, ids, batch["input_ids"].shape[1], batch["attention_mask"])
    assert counter.frame_count <= 3, f"{counter.frame_count} graphs"


@pytest.mark.slow
def test_a_compiled_step_decodes_the_same_tokens_without_compiling_at_every_step():
    """A length that is a Python number must not become a constant of the compiled code."""
    model = make_model("qwen3", torch.float64, num_hidden_layers=1)
    check_compiled(model, {"input_ids": tokens(1, 23), "attention_mask": torch.ones(1, 23, dtype=torch.int64)})


@pytest.mark.slow
def test_a_compiled_step_of_a_padded_batch():
    check_compiled(stock_model("qwen3"), left_padded(23, 9))


@pytest.mark.slow
def test_a_step_compiled_to_machine_code_decodes_the_same_tokens():
    torch._dynamo.reset()
    model = stock_model("llama", torch.float32)
    mask = some_mask(model, WINDOW, 2, ratio=1.0).assign({(1, 0): True, (2, 0): True})
    batch = {"input_ids": tokens(1, 23), "attention_mask": torch.ones(1, 23, dtype=torch.int64)}
    ids = compiled_decoding(model, mask, batch, "inductor", 30)
    assert is_greedy(model, mask, ids, 23, batch["attention_mask"])
