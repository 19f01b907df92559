import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch.errors import BoschError
from bosch.evaluation.metrics import classification

CLASSES = ("Food", "Date", "City", "Sport", "event", "Sport event")


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("Food", ["Food"], 1),
        ("The type is Food, of course", ["Food"], 1),
        ("Food or Date", ["Food"], 1 / 2),
        ("Food, Date and City", ["Date"], 1 / 3),
        ("City", ["Food"], 0),
        ("", ["Food"], 0),
        ("food", ["Food"], 0),
        ("Sport event", ["Sport"], 1 / 3),  # names Sport, event and Sport event
        ("Sport event", ["Sport event"], 1 / 2),  # Sport lies within and is dropped; event is stepped over and counts
        ("event: Food", ["event"], 1 / 2),
        ("Food", ["Date", "Food"], 1),
    ],
)
def test_share_of_the_classes_named(answer, references, expected):
    assert classification(answer, references, CLASSES) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("文化、教育", 1), ("体育", 0), ("体育和文化、教育", 1 / 2), ("新闻类别：文化、教育", 1)],  # noqa: RUF001
)
def test_chinese_classes(answer, expected):
    assert classification(answer, ["文化、教育"], ["体育", "经济", "文化、教育"]) == expected


def test_a_class_within_the_right_one_is_no_second_answer():
    assert classification("Sport event", ["Sport event"], ["Sport", "Sport event"]) == 1
    assert classification("Sport event", ["Sport event"], ["Sport event", "Sport"]) == 1


@given(
    answer=st.text("abc ", max_size=9),
    classes=st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, unique=True),
)
def test_follows_the_published_definition(answer, classes):
    """It takes names off the list that it walks along."""
    reference = classes[0]
    named = [name for name in classes if name in answer]
    for name in named:
        if name != reference and name in reference:
            named.remove(name)
    expected = 1 / len(named) if reference in named else 0
    assert classification(answer, [reference], classes) == expected


def test_without_classes():
    with pytest.raises(BoschError, match="a classification needs the names of all classes, got none"):
        classification("Food", ["Food"], [])
