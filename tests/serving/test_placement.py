import hypothesis.strategies as st
import pytest
from hypothesis import given

from bosch.serving.placement import CUT, MAX_GROUPS, place

HELD = {None: 256, 1024: 25, 64: 17}


def windows_of(**counts):
    kinds = {"full": None, "wide": 1024, "narrow": 64}
    return [kinds[name] for name, count in counts.items() for _ in range(count)]


def bucket_sizes(placement):
    return [placement.pages.count(pages) for pages in set(placement.pages)]


counts = st.tuples(st.integers(0, 130), st.integers(0, 130), st.integers(0, 40)).filter(any)


@given(counts)
def test_no_head_lies_in_pages_that_forget_what_it_sees(counts):
    full, narrow, wide = counts
    windows = windows_of(full=full, narrow=narrow, wide=wide)
    placement = place(windows, {window: HELD[window] for window in {*windows}})
    assert len(placement.pages) == len(windows)
    for window, pages in zip(windows, placement.pages, strict=True):
        assert pages.window is None or (window is not None and window <= pages.window)


@given(counts)
def test_buckets_are_such_that_vllm_leaves_them_whole(counts):
    full, narrow, wide = counts
    windows = windows_of(full=full, narrow=narrow, wide=wide)
    sizes = bucket_sizes(place(windows, {window: HELD[window] for window in {*windows}}))
    assert len(sizes) <= MAX_GROUPS
    assert max(sizes) < CUT * min(sizes)


@given(counts)
def test_what_is_reserved_is_counted_page_by_page(counts):
    full, narrow, wide = counts
    windows = windows_of(full=full, narrow=narrow, wide=wide)
    placement = place(windows, {window: HELD[window] for window in {*windows}})
    widest = max(bucket_sizes(placement))  # a block holds a page for each head of the widest group
    assert placement.reserved == sum(HELD[pages.window] * widest for pages in set(placement.pages))


@pytest.mark.parametrize(
    ("full", "narrow", "at_most"),
    # By hand: (full * 256 + narrow * 17) / (256 * all), and 6 % for heads that do not fill their groups.
    [(45, 45, 0.534), (150, 74, 0.725), (112, 112, 0.534), (56, 168, 0.301 * 1.06), (190, 34, 0.90), (1, 223, 0.16)],
)
def test_little_is_wasted(full, narrow, at_most):
    windows = windows_of(full=full, narrow=narrow)
    assert place(windows, {None: 256, 64: 17}).reserved <= at_most * 256 * len(windows)


def test_a_window_longer_than_the_sequence_does_not_take_a_full_heads_place():
    # Near the full length vLLM reserves one block more for a sliding head than for a full one.
    windows = [None, None, 4096, 4096, 4096]
    placement = place(windows, {None: 8, 4096: 9})
    assert [pages.window for pages in placement.pages[:2]] == [None, None]


def test_all_alike_are_one_group():
    assert {pages.bucket for pages in place([64] * 90, {64: 3}).pages} == {0}
    assert place([None] * 90, {None: 3}).reserved == 270
