import pytest

from bosch.common.options import read_haystack
from bosch.errors import BoschError
from bosch.experiments.settings import SearchSettings
from bosch.heads import HeadLayout
from bosch.selectors import METHODS

NAN = float("nan")


def settings(**changes) -> SearchSettings:
    return SearchSettings(**{"model": "m", "ratio": 0.5, "window": 4, **changes})


def test_what_need_not_be_said():
    assert settings().method == "progressive"
    assert settings().objective == "nll"
    layout = HeadLayout((4, 0, 4, 3))
    assert settings().evaluations_per_layer(METHODS["progressive"](), layout) == 11, (
        "3 for each of 11 units, in 3 layers"
    )
    assert settings().evaluations_per_layer(METHODS["bosch"](), layout) == 100
    assert settings(budget=3).evaluations_per_layer(METHODS["bosch"](), layout) == 3


@pytest.mark.parametrize("changes", [{"ratio": 0}, {"ratio": 1.0}, {"window": 511}, {"sinks": 0}, {"lengths": (5, 9)}])
def test_limits_belong_to_the_range(changes):
    settings(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ratio": -0.01}, "ratio must be a number from 0 .* got -0.01"),
        ({"ratio": 1.01}, "ratio must be a number from 0 .* got 1.01"),
        ({"ratio": NAN}, "ratio must be a number from 0 .* got nan"),
        ({"ratio": "0.5"}, "ratio must be a number from 0 .* got '0.5'"),
        ({"ratio": True}, "ratio must be a number from 0 .* got True"),
        ({"window": 0}, "window must be an integer of at least 1, got 0"),
        ({"window": 4.0}, r"window must be an integer of at least 1, got 4\.0"),
        ({"window": True}, "window must be an integer of at least 1, got True"),
        ({"window": 512}, "a window of 512 tokens covers examples of 512 tokens whole"),
        ({"window": 64, "lengths": (512, 64)}, "a window of 64 tokens covers examples of 64 tokens whole"),
        ({"sinks": -1}, "sinks must be an integer of at least 0, got -1"),
        ({"examples": 0}, "examples must be an integer of at least 1, got 0"),
        ({"heldout": 0}, "heldout must be an integer of at least 1, got 0"),
        ({"budget": 0}, "budget must be an integer of at least 1, got 0"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"lengths": ()}, "at least one length and one task"),
        ({"tasks": ()}, "at least one length and one task"),
        ({"lengths": (512, 0)}, "length must be an integer of at least 1, got 0"),
        ({"memory_gib": 0.0}, r"memory_gib must be a positive number of GiB, got 0\.0"),
        ({"memory_gib": NAN}, "memory_gib must be a positive number of GiB, got nan"),
        ({"memory_gib": 1e308}, r"memory_gib must be a positive number of GiB, got 1e\+308"),
        ({"method": "progresive"}, "unknown method 'progresive'; did you mean 'progressive'"),
        ({"objective": "acuracy"}, "unknown objective 'acuracy'; did you mean 'accuracy'"),
        ({"tasks": ("niah_single_1", "niah_singel_2")}, "unknown task 'niah_singel_2'; did you mean 'niah_single_2'"),
    ],
)
def test_what_is_out_of_range_is_refused(changes, message):
    with pytest.raises(BoschError, match=message):
        settings(**changes)


def test_haystack_is_read_as_utf8(tmp_path):
    (tmp_path / "text").write_bytes("Über den Wolken.".encode())
    assert read_haystack(str(tmp_path / "text")) == "Über den Wolken."
    assert read_haystack(settings().haystack) is None


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), (b"caf\xe9", "can't decode byte 0xe9 in position 3")]
)
def test_haystack_that_cannot_be_read_is_named(tmp_path, content, message):
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BoschError, match=f"cannot read the haystack {path}: .*{message}"):
        read_haystack(str(path))
