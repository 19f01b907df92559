"""F = 2 P R / (P + R), P = l / n and R = l / m: l different words in the union of the longest common subsequences, n
different words in the answer, m in the reference. The library adds 1e-8 to P + R; all values are good to that."""

import functools
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch.evaluation.metrics import rouge_l, rouge_l_zh


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("the cat sat", ["the cat sat"], 1),
        ("police killed the gunman", ["police kill the gunman"], Fraction(3, 4)),  # police the gunman: l=3 n=4 m=4
        ("the gunman kill police", ["police kill the gunman"], Fraction(1, 2)),  # the gunman: l=2 n=4 m=4
        ("d c b a", ["a b c d"], Fraction(1, 4)),  # one word: l=1 n=4 m=4
        # against the first sentence w1 w2, against the second w1 w3 w5, together l=4; n=8 m=5: P=4/8 R=4/5
        ("w1 w2 w6 w7 w8. w1 w3 w8 w9 w5", ["w1 w2 w3 w4 w5"], Fraction(8, 13)),
        ("the the the cat", ["the cat"], 1),  # a word counts once: l=2 n=2 m=2
        ("Cat", ["cat"], 0),
        ("cat, sat", ["cat sat"], Fraction(1, 2)),  # "cat," is another word: l=1 n=2 m=2
        ("", ["cat"], 0),
        ("...", ["cat"], 0),
        ("cat", ["..."], 0),
        ("The cat sat. ", ["The cat sat."], Fraction(6, 7)),  # an empty word after the full stop: l=3 n=4 m=3
        ("U.S. law", ["US law"], Fraction(2, 5)),  # U | S | law against US law: l=1 n=3 m=2
        ("cat\n sat", ["cat sat"], 1),
        ("cat", ["dog", "cat sat"], Fraction(2, 3)),  # the better of 0 and l=1 n=1 m=2
    ],
)
def test_english(answer, references, expected):
    assert rouge_l(answer, references) == pytest.approx(float(expected), abs=2e-8)


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("我来到北京清华大学", ["我来到北京清华大学"], 1),
        ("我来到北京清华大学", ["清华大学"], Fraction(2, 5)),  # 我 来到 北京 清华大学 | 清华大学: l=1 n=4 m=1
        ("清华大学北京", ["北京清华大学"], Fraction(1, 2)),  # the two words in another order: l=1 n=2 m=2
        ("我来到北京。", ["我来到北京"], Fraction(6, 7)),  # the mark is a word: l=3 n=4 m=3
        ("他来到了网易杭研大厦", ["网易大厦"], Fraction(1, 2)),  # 他 来到 了 网易 杭研 大厦 | 网易 大厦: l=2 n=6 m=2
        ("", ["北京"], 0),
        ("北京", ["上海", "中国北京"], Fraction(2, 3)),  # the better of 0 and l=1 n=1 m=2
        ("GDP增长", ["gdp增长"], Fraction(1, 2)),  # case counts: l=1 n=2 m=2
    ],
)
def test_chinese(answer, references, expected):
    assert rouge_l_zh(answer, references) == pytest.approx(float(expected), abs=2e-8)


def test_long_sentences_score_where_the_recursion_of_the_library_would_end():
    limit = sys.getrecursionlimit()
    answer = " ".join(f"x{index}" for index in range(701))
    reference = " ".join([*(f"y{index}" for index in range(701)), "x0"])  # l=1 n=701 m=702
    assert rouge_l(answer, [reference]) == pytest.approx(2 / (701 + 702), abs=2e-8)
    assert sys.getrecursionlimit() == limit


@given(
    answer=st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=7, unique=True),
    reference=st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=7, unique=True),
)
def test_one_sentence_of_different_words_follows_the_definition(answer, reference):
    @functools.cache
    def common(i, j):
        if i == len(answer) or j == len(reference):
            return 0
        if answer[i] == reference[j]:
            return 1 + common(i + 1, j + 1)
        return max(common(i + 1, j), common(i, j + 1))

    expected = 2 * common(0, 0) / (len(answer) + len(reference))
    assert rouge_l(" ".join(answer), [" ".join(reference)]) == pytest.approx(expected, abs=2e-8)
