import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bosch.cache_size import CacheBudget, CacheSize
from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from families import make_model

LAYOUT = HeadLayout((2, 0, 3))
SIZE = CacheSize(unit_bytes=(10, 0, 7), others=((100, None), (1000, 5)))


def test_bytes_by_hand():
    mask = HeadMask(LAYOUT, ((True, False), (), (False, False, True)), window=4, sinks=2)
    others = 100 * 9 + 1000 * 5
    assert SIZE.nbytes(mask, 9) == 10 * (9 + 6) + 7 * (6 + 6 + 9) + others
    assert SIZE.nbytes(mask, 3) == 10 * (3 + 3) + 7 * 9 + 100 * 3 + 1000 * 3
    wider = mask.give_window(5, [2])
    assert SIZE.nbytes(wider, 9) == 10 * (9 + 6) + 7 * (7 + 7 + 9) + others


@given(st.integers(1, 2000), st.integers(1, 40))
def test_the_smallest_number_that_fits_whichever_units_slide(budget, num_tokens):
    size, full = CacheSize((10, 0, 7)), HeadMask.all_full(LAYOUT, window=4)
    masks = [full.localize(units) for units in subsets(list(LAYOUT.units()))]
    fits = {
        count: all(size.nbytes(mask, num_tokens) <= budget for mask in masks if mask.num_localized == count)
        for count in range(6)
    }
    if not any(fits.values()):
        with pytest.raises(BoschError, match=f"a cache of {budget:,} bytes at {num_tokens} tokens is too small"):
            size.num_localized_within(CacheBudget(budget, num_tokens), full)
    else:
        count = size.num_localized_within(CacheBudget(budget, num_tokens), full)
        assert count == min(count for count, fit in fits.items() if fit)


def subsets(items: list) -> list[list]:
    return [[]] if not items else [rest + part for rest in subsets(items[1:]) for part in ([], [items[0]])]


@pytest.mark.parametrize(
    ("text", "num_bytes", "num_tokens"),
    [("2GiB@32k", 2 * 2**30, 32768), ("1.5MiB@100", 3 * 2**19, 100), ("7B@1k", 7, 1024), ("3KiB@8", 3072, 8)],
)
def test_a_budget_is_read(text, num_bytes, num_tokens):
    assert CacheBudget.parse(text) == CacheBudget(num_bytes, num_tokens)


@pytest.mark.parametrize("text", ["", "2GiB", "32k", "2GB@32k", "2 GiB@32k", "0MiB@1", "1MiB@0", "-1MiB@4", "1MiB@4M"])
def test_what_is_no_budget_is_named(text):
    with pytest.raises(BoschError, match="like 2GiB@32k"):
        CacheBudget.parse(text)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss"])
def test_a_models_sizes_are_those_of_its_own_cache(family):
    """With everything full, after as many tokens as any native window holds."""
    model = make_model(family)
    decoder = Decoder(model)
    with torch.no_grad():
        cache = model(torch.ones(1, 3, dtype=torch.int64), use_cache=True).cache
    expected = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    full = HeadMask.all_full(decoder.layout, window=2)
    assert decoder.cache_size.nbytes(full, 3) == expected
