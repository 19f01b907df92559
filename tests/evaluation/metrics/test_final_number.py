import pytest

from bosch.evaluation.metrics import strict_number

SOLUTION = "Half of 36 is <<36/2=18>>18 dollars.\n#### 18"


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        (" It is 18.\n#### 18", SOLUTION, 1),
        ("#### 18.", SOLUTION, 1),
        ("#### 18\n\nThat leaves 3", SOLUTION, 1),  # the first after the mark
        ("#### 3\n#### 18", SOLUTION, 0),
        ("####18", SOLUTION, 0),  # the mark ends with a space
        ("#### $18", SOLUTION, 0),  # no currency is known
        ("The answer is 18.", SOLUTION, 0),
        ("18 apples and 3 pears", SOLUTION, 0),
        ("#### 18.0", SOLUTION, 0),  # compared as text
        ("#### 1,000", "so\n#### 1000", 1),
        ("#### 1000", "so\n#### 1,000", 1),
        ("#### -5", "so\n#### -5", 1),
        ("#### 5", "so\n#### -5", 0),
        ("it is $7", "7", 0),
        ("eighteen", SOLUTION, 0),
        ("", SOLUTION, 0),
    ],
)
def test_numbers(answer, reference, score):
    assert strict_number(answer, [reference]) == score


def test_any_of_several_references():
    assert strict_number("#### 18", ["#### 3", SOLUTION]) == 1
