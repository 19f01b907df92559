"""Quota spaces against counting by hand and against exhaustive search."""

import itertools
import random
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch.errors import BoschError
from bosch.optimizers import QuotaSpace

blocks = st.integers(0, 4).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size)))
spaces = (
    st.lists(blocks, min_size=1, max_size=3)
    .filter(lambda quotas: any(size for size, _ in quotas))
    .map(lambda quotas: QuotaSpace(tuple(quotas)))
)


@st.composite
def spaces_and_bits(draw):
    space = draw(spaces)
    return space, tuple(draw(st.lists(st.booleans(), min_size=space.dimension, max_size=space.dimension)))


def distance(left, right):
    return sum(a != b for a, b in zip(left, right, strict=True))


def meets(space, bits):
    rest = list(bits)
    for size, ones in space.quotas:
        if sum(rest[:size]) != ones:
            return False
        del rest[:size]
    return True


@given(spaces_and_bits())
def test_projection_is_a_nearest_feasible_point_and_always_the_same(case):
    space, bits = case
    points = [p for p in itertools.product((False, True), repeat=space.dimension) if meets(space, p)]
    projected = space.project(bits)
    nearest = min(distance(bits, point) for point in points)
    assert projected in points
    assert distance(bits, projected) == nearest
    assert space.project(bits) == projected
    assert space.is_feasible(bits) == (nearest == 0)


@given(spaces)
def test_enumeration_is_every_feasible_point_once(space):
    points = list(space.enumerate())
    assert len(points) == len(set(points)) == space.num_feasible
    assert set(points) == {p for p in itertools.product((False, True), repeat=space.dimension) if meets(space, p)}
    assert list(space.enumerate()) == points


@given(spaces, st.integers())
def test_samples_are_feasible_and_free_bits_are_those_that_vary(space, seed):
    points = list(space.enumerate())
    assert space.sample(random.Random(seed)) in points
    assert space.free == tuple(i for i in range(space.dimension) if len({point[i] for point in points}) == 2)


def test_the_count_is_exact_where_floats_are_not():
    space = QuotaSpace(((101, 50), (97, 31)))
    assert space.num_feasible == comb(101, 50) * comb(97, 31)
    assert space.dimension == 198


def test_projections_of_different_points_spread():
    """All points with one bit too many that surround one feasible point: a fixed order would always drop the same."""
    space = QuotaSpace(((23, 11),))
    base = [i < 11 for i in range(23)]
    points = [tuple(bit or i == extra for i, bit in enumerate(base)) for extra in range(11, 23)]
    dropped = {next(i for i in range(23) if point[i] and not space.project(point)[i]) for point in points}
    assert len(dropped) >= 6


@pytest.mark.parametrize("quotas", [((3, 4),), ((3, -1),), ((2.0, 1),), ((2, True),), (("4", 2),)])
def test_a_quota_outside_its_block_is_refused(quotas):
    with pytest.raises(BoschError, match="expected 0 to its size"):
        QuotaSpace(quotas)


@pytest.mark.parametrize("quotas", [(), ((0, 0),)])
def test_a_space_without_bits_is_refused(quotas):
    with pytest.raises(BoschError, match="at least one bit"):
        QuotaSpace(quotas)
