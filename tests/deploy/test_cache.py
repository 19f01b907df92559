"""The cache by itself: which tokens it holds, what it gives up, what it weighs."""

import copy
import pickle

import pytest
import torch
from dense_reference import visible
from hypothesis import given, settings
from hypothesis import strategies as st
from stock_models import hybrid_of, some_mask, stock_model, tokens
from torch import Tensor
from transformers import LlamaConfig

from bosch.deploy.modeling_bosch import UNBOUNDED, BoschCache, Rule, Store, attend


def numbered(start: int, stop: int, rows: int = 1) -> tuple[Tensor, Tensor]:
    """Keys (rows, 2 heads, stop - start, 3) that say which token they are, and values that say so too."""
    number = torch.arange(start, stop, dtype=torch.float32)[None, None, :, None]
    return number.expand(rows, 2, -1, 3), -number.expand(rows, 2, -1, 5)


def held(store: Store) -> list[int]:
    return sorted(store.buffers[0][0, 0, :, 0].int().tolist())


def append(store: Store, count: int, **options) -> Tensor:
    (keys, _), _ = store.extend(numbered(store.seen, store.seen + count), None, options.get("record_past", False))
    return keys[0, 0, :, 0].int()


def test_the_slot_that_is_overwritten_when_the_window_fills():
    """Exactly at the boundary the oldest token goes, and no other."""
    store = Store(8, 0)
    append(store, 6)
    for newest, expected in ((6, range(7)), (7, range(8)), (8, range(1, 9)), (9, range(2, 10))):
        assert sorted(append(store, 1).tolist()) == list(expected)
        assert held(store) == list(expected)
        assert store.seen == newest + 1


def test_sinks_stay_and_are_held_once():
    store = Store(8, 2)
    append(store, 6)
    for newest in range(6, 40):
        append(store, 1)
        expected = [0, 1, *range(max(2, newest - 7), newest + 1)]
        assert held(store) == expected


@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("chunks", [[17], [3, 3, 3, 3, 5], [5, 12], [4, 13], [16, 1], [3, 4, 5, 5]])
def test_the_first_query_of_a_chunk_still_sees_its_whole_window(chunks, sinks):
    """Chunks of a window less one, a window, a window and one: nothing is given up before it was attended to."""
    store = Store(4, sinks)
    for chunk in chunks:
        start = store.seen
        seen = append(store, chunk).tolist()
        assert seen[-chunk:] == list(range(start, start + chunk)) or chunk == 1
        assert set(range(max(0, start - 3), start + chunk)) | set(range(min(sinks, start))) <= set(seen)
        assert len(set(seen)) == len(seen)


# ---------------------------------------------------------------------------------------------------------------------
# Any sequence of chunks, single tokens and rollbacks, padded or not, against dense masks over everything.
# ---------------------------------------------------------------------------------------------------------------------


@st.composite
def histories(draw):
    counts = st.sampled_from([1, 1, 2, 3, 5, 11])
    return {
        "window": draw(st.sampled_from([1, 2, 3, 5, 8, UNBOUNDED])),
        "sinks": draw(st.integers(0, 4)),
        # Tokens that come, whether they are recorded, and then how many that turn out wrong.
        "steps": draw(st.lists(st.tuples(counts, st.booleans(), st.integers(0, 6)), min_size=1, max_size=10)),
        "pads": draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)),
        "seed": draw(st.integers(0, 99)),
    }


@settings(max_examples=150)
@given(histories())
def test_any_history_equals_dense_masks(history):
    window, sinks = history["window"], history["sinks"] if history["window"] != UNBOUNDED else 0
    pads, generator = torch.tensor(history["pads"]), torch.Generator().manual_seed(history["seed"])
    rows, total = len(pads), sum(count for count, _, _ in history["steps"])

    def random(*shape):
        return torch.randn(*shape, 7, generator=generator, dtype=torch.float64)

    def real_until(stop):
        real = torch.arange(stop) >= pads[:, None]
        return None if real.all() else real

    query, key, value = random(rows, 2, 3, total), random(rows, 2, total), random(rows, 2, total)
    real = torch.arange(total) >= pads[:, None]
    allowed = visible(real, None if window == UNBOUNDED else window, sinks)[:, None, None]
    scores = (query @ key[:, :, None].mT * 0.3).masked_fill(~allowed, -torch.inf)
    expected = scores.softmax(-1) @ value[:, :, None]
    store, start = Store(window, sinks), 0
    for count, record, num_wrong in history["steps"]:
        stop = start + count
        new = key[:, :, start:stop], value[:, :, start:stop]
        (keys, values), is_real = store.extend(new, real_until(stop), record)
        output = attend(query[:, :, :, start:stop], keys, values, Rule(0.3, window, sinks), is_real)
        assert output.isfinite().all()
        at = real[:, start:stop][:, None, None, :, None].expand_as(output)
        torch.testing.assert_close(output[at], expected[:, :, :, start:stop][at], rtol=0, atol=1e-12)
        if record:
            if num_wrong:
                wrong = random(rows, 2, num_wrong), random(rows, 2, num_wrong)
                store.extend(wrong, real_until(stop + num_wrong), True)
            store.crop(num_wrong)
        assert store.seen == stop
        start = stop


# ---------------------------------------------------------------------------------------------------------------------
# Memory
# ---------------------------------------------------------------------------------------------------------------------


def storage_bytes(cache: BoschCache) -> int:
    """Of every tensor that hangs on the cache, each storage once."""
    storages = {}
    for layer in cache.layers:
        for store in layer.stores:
            for value in vars(store).values():
                for tensor in value if isinstance(value, list) else [value]:
                    if isinstance(tensor, Tensor):
                        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.mark.parametrize(("full", "sinks"), [(0, 0), (1, 3)])
def test_bytes_follow_the_formula_from_the_first_token_to_8192(full, sinks):
    """2 * head_dim * dtype * (full * T + sliding * min(T, W + S)), within 2 %, token by token."""
    window, groups, head_dim = 61, 3, 2
    config = LlamaConfig(num_hidden_layers=1)
    config.bosch = {"layers": [{"full": full, "window": window, "sinks": sinks, "heads": []}]}
    cache = BoschCache(config)
    new = torch.zeros(1, groups, 1, head_dim, dtype=torch.float16)
    layer = cache.layers[0]
    layer.update(new, new)
    parts = [slice(0, full), slice(full, groups)]
    parts = [part for part in parts if part.stop > part.start]
    for length in range(1, 8193):
        for store, part in zip(layer.stores, parts, strict=True):
            store.extend((new[:, part], new[:, part]), None, False)
        formula = 2 * head_dim * 2 * (full * length + (groups - full) * min(length, window + sinks))
        assert cache.nbytes_at(length) == formula
        assert formula <= cache.nbytes <= 1.02 * formula
        if length % 997 == 0 or length < 130:
            assert storage_bytes(cache) == cache.nbytes


def test_one_long_prompt_leaves_only_the_windows_behind():
    """No view keeps the storage of the whole prompt alive, also not with one row and one head."""
    model = stock_model("qwen3", torch.float32)
    mask = some_mask(model, 16, 2, ratio=1.0).assign({(1, 0): True})
    cache = hybrid_of(model, mask).new_cache()
    with torch.no_grad():
        hybrid_of(model, mask)(tokens(1, 250), cache=cache)
    assert storage_bytes(cache) == cache.nbytes
    formula = 2 * 8 * 4 * (1 * 250 + 5 * (16 + 2))
    assert cache.nbytes_at(250) == formula
    assert formula <= cache.nbytes <= 1.02 * formula


def test_decoding_moves_nothing():
    """The window stays where it is; the full part is copied once in every 64th of its length, not at every token."""
    sliding, full = Store(16, 2), Store(UNBOUNDED, 0)
    for store in (sliding, full):
        append(store, 1000)
    windows, fulls = set(), set()
    for _ in range(1000):
        for store, places in ((sliding, windows), (full, fulls)):
            append(store, 1)
            places.add(store.buffers[0].data_ptr())
    assert len(windows) == 1
    moves, seen = 0, 1015
    while seen < 2000:
        moves, seen = moves + 1, (seen + 1) + (seen + 1) // 64
    assert len(fulls) <= moves + 1


def test_an_empty_cache_does_not_know_its_bytes():
    cache = hybrid_of(stock_model(), some_mask(stock_model())).new_cache()
    assert cache.nbytes == 0
    with pytest.raises(ValueError, match="an empty cache"):
        cache.nbytes_at(5)


# ---------------------------------------------------------------------------------------------------------------------
# Rollback and rows
# ---------------------------------------------------------------------------------------------------------------------


def test_forgetting_more_than_the_window_allows_is_an_error():
    """After the window was trimmed, its lost tokens cannot come back; a silently short window would be wrong."""
    model = stock_model()
    hybrid = hybrid_of(model, some_mask(model, 4, ratio=1.0))
    ids = tokens(1, 17)
    cache = hybrid.new_cache()
    with torch.no_grad():
        hybrid(ids, cache=cache)
        with pytest.raises(ValueError, match=r"window of 4 tokens .* call activate_past_recording"):
            cache.crop(-10)
        assert cache.get_seq_length() == 17
        cache.crop(-1)  # the one token that the next would have driven out is held still
        with pytest.raises(ValueError, match="cannot forget the last 1 of 16 tokens"):
            cache.crop(-1)
        again = hybrid(ids[:, 16:], cache=cache).logits
        torch.testing.assert_close(again, hybrid(ids).logits[:, 16:], rtol=0, atol=1e-9)
        cache = hybrid.new_cache()
        cache.activate_past_recording()
        hybrid(ids, cache=cache)
        cache.crop(-10)
        again = hybrid(ids[:, 7:], cache=cache).logits
        torch.testing.assert_close(again, hybrid(ids).logits[:, 7:], rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="minus the number"):
        cache.crop(5)


def test_what_recording_held_is_given_up_at_crop():
    model = stock_model()
    hybrid = hybrid_of(model, some_mask(model, 4, 1, ratio=1.0))
    cache = hybrid.new_cache()
    cache.activate_past_recording()
    with torch.no_grad():
        hybrid(tokens(1, 40), cache=cache)
        assert all(store.buffers[0].shape[2] == 40 for layer in cache.layers for store in layer.stores)
        cache.crop(0)
    assert all(store.buffers[0].shape[2] == 1 + 4 for layer in cache.layers for store in layer.stores)


def test_rows_can_be_repeated_chosen_reordered_and_pickled():
    model = stock_model()
    hybrid = hybrid_of(model, some_mask(model, 4, 2))
    ids, after = tokens(2, 11), tokens(2, 3, seed=7)
    cache = hybrid.new_cache()
    with torch.no_grad():
        hybrid(ids, cache=cache)
        expected = hybrid(torch.cat([ids, after], dim=1)).logits[:, 11:]
        for change, rows in (
            (lambda c: c.batch_repeat_interleave(2), [0, 0, 1, 1]),
            (lambda c: c.batch_select_indices(torch.tensor([1])), [1]),
            (lambda c: c.reorder_cache(torch.tensor([1, 1])), [1, 1]),
        ):
            changed = pickle.loads(pickle.dumps(cache))
            change(changed)
            new = after[rows]
            if rows == [1, 1]:
                new, wanted = after[[0, 1]], hybrid(torch.cat([ids[[1, 1]], after], dim=1)).logits[:, 11:]
            else:
                wanted = expected[rows]
            torch.testing.assert_close(hybrid(new, cache=changed).logits, wanted, rtol=0, atol=1e-9)
        cache.reset()
        assert (cache.nbytes, cache.get_seq_length()) == (0, 0)
        torch.testing.assert_close(hybrid(ids, cache=cache).logits, hybrid(ids).logits, rtol=0, atol=1e-9)


def test_a_copy_of_a_cache_is_independent():
    hybrid = hybrid_of(stock_model(), some_mask(stock_model(), 4, 2))
    cache = hybrid.new_cache()
    with torch.no_grad():
        hybrid(tokens(1, 9), cache=cache)
        before = [buffer.clone() for layer in cache.layers for store in layer.stores for buffer in store.buffers]
        hybrid(tokens(1, 5), cache=copy.deepcopy(cache))
    after = [buffer for layer in cache.layers for store in layer.stores for buffer in store.buffers]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
