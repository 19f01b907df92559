import pytest

from bosch.errors import BoschError
from bosch.heads import HeadLayout, HeadMask
from bosch.serving.heads import LayerHeads, check_family, read_heads

EXPORTED = {
    "layers": [
        {"full": 1, "window": 64, "sinks": 0, "heads": [2, 0, 1]},
        {"full": 0, "window": 32, "sinks": 0, "heads": []},  # slides by itself
        {"full": 3, "window": 64, "sinks": 4, "heads": [0, 1, 2]},  # none slides: its sinks are of no matter
    ]
}


def mask(sinks=0):
    return HeadMask(HeadLayout((3, 0)), ((False, True, False), ()), 64, sinks, (128, 64))


def test_an_export_has_its_full_heads_first():
    assert read_heads(EXPORTED) == (
        LayerHeads((True, False, False), 64),
        LayerHeads((), 32),
        LayerHeads((True, True, True), 64),
    )


def test_a_mask_counts_heads_as_the_original_does():
    assert read_heads(mask().to_json()) == (LayerHeads((False, True, False), 128), LayerHeads((), 64))


def test_sinks_are_refused():
    with pytest.raises(BoschError, match="keep 2 sinks"):
        read_heads(mask(sinks=2).to_json())
    layers = [{"full": 2, "window": 64, "sinks": 4, "heads": [0, 1, 2]}]
    with pytest.raises(BoschError, match="keep 4 sinks"):
        read_heads({"layers": layers})


def test_sinks_of_no_head_are_nothing():
    assert read_heads(HeadMask.all_full(HeadLayout((3,)), 64, sinks=2).to_json()) == (LayerHeads((True,) * 3, 64),)
    assert len(read_heads({"layers": [{"full": 3, "window": 64, "sinks": 4, "heads": [0, 1, 2]}]})) == 1


@pytest.mark.parametrize("found", [None, 3, {"layers": 3}, {"layers": [3]}, {"layers": [{"full": 1}]}, {"schema": "x"}])
def test_anything_else_is_refused(found):
    with pytest.raises(BoschError):
        read_heads(found)


def test_a_family_that_was_not_tried_is_refused_with_those_that_were():
    check_family("qwen3")
    with pytest.raises(BoschError, match=r"'gpt_oss' cannot be served.*llama, qwen2"):
        check_family("gpt_oss")
