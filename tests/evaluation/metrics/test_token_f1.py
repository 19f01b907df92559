# ruff: noqa: RUF001 - Chinese texts have Chinese punctuation
"""F1 = 2 s / (n + m): s words shared, n words of the answer, m words of the reference, written out for each case."""

import re
import string
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bosch.evaluation.metrics import CHINESE_MARKS, token_f1, token_f1_zh


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("cat sat", ["cat sat"], 1),
        ("The cat sat.", ["a CAT, sat!"], 1),  # articles, marks and case are gone: cat sat | cat sat
        ("cat sat mat", ["cat mat"], Fraction(4, 5)),  # s=2 n=3 m=2
        ("cat cat dog", ["cat dog dog"], Fraction(2, 3)),  # cat once, dog once: s=2 n=3 m=3
        ("mat cat", ["cat mat"], 1),  # order does not count
        ("dog", ["cat"], 0),
        ("", ["cat"], 0),
        ("the", ["a"], 0),  # nothing is left on either side, and nothing is shared
        ("U.S.", ["us"], 1),  # marks vanish without a space
        ("well-known", ["well known"], 0),  # wellknown | well known
        ("a.b", ["b"], 0),  # ab | b: marks go before articles, so the a is no article
        ("theatre", ["the atre"], 0),  # theatre | atre: an article is a whole word
        ("don't", ["dont"], 1),
        ("cat\n\tsat", ["cat sat"], 1),
        ("ÉTÉ", ["été"], 1),
        ("“cat”", ["cat"], 0),  # only ASCII marks go in English
        ("Paris", ["London", "Paris, France"], Fraction(2, 3)),  # the better of 0 and s=1 n=1 m=2
        ("It was Paris in France I think", ["Paris"], Fraction(2, 8)),  # s=1 n=7 m=1
    ],
)
def test_english(answer, references, expected):
    assert token_f1(answer, references) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("北京", ["北京"], 1),
        ("我来到北京清华大学。", ["清华大学"], Fraction(2, 5)),  # 我 来到 北京 清华大学 | 清华大学
        ("他来到了网易杭研大厦", ["网易大厦"], Fraction(4, 8)),  # 他 来到 了 网易 杭研 大厦 | 网易 大厦
        ("上海，北京", ["北京、上海！"], 1),  # order does not count, marks go
        ("“北京”", ["北京。"], 1),
        ("《北京》", ["北京"], Fraction(2, 3)),  # 《 北京 | 北京: LongBench drops the bracket that closes a title alone
        ("中国·北京", ["中国北京"], Fraction(4, 5)),  # 中国 · 北京 | 中国 北京: and keeps the middle dot
        ("GDP 增长", ["gdp增长"], 1),  # gdp 增长: case and spaces go
        ("12.5%", ["125"], 1),  # one word, without its marks
        ("", ["北京"], 0),
        ("。", ["，"], 0),
        ("北京", ["上海", "北京市", "中国北京"], Fraction(2, 3)),  # 上海 | 北京市 | 中国 北京: the best is s=1 n=1 m=2
        ("研究生命的起源", ["生命"], Fraction(2, 5)),  # 研究 生命 的 起源 | 生命
    ],
)
def test_chinese(answer, references, expected):
    assert token_f1_zh(answer, references) == pytest.approx(float(expected), abs=1e-12)


def test_chinese_marks_are_the_published_ones():
    published = (
        "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】"
        "〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏"
    )
    assert set(published) == CHINESE_MARKS


WORDS = st.lists(st.sampled_from(["Cat", "cat,", "sat", "the", "A", "an.", "?", "U.S."]), max_size=8).map(" ".join)


@given(answer=WORDS, reference=WORDS)
def test_english_follows_the_definition(answer, reference):
    def words(text):
        kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
        return [word for word in re.split(r"\s+", kept) if word not in ("", "a", "an", "the")]

    mine, theirs = words(answer), words(reference)
    num_shared = sum(min(mine.count(word), theirs.count(word)) for word in set(mine))
    expected = 0
    if num_shared:
        precision, recall = Fraction(num_shared, len(mine)), Fraction(num_shared, len(theirs))
        expected = 2 * precision * recall / (precision + recall)
    assert token_f1(answer, [reference]) == pytest.approx(float(expected), abs=1e-12)
