import importlib
import marshal
import sys
import tempfile

import pytest

from bosch.errors import BoschError
from bosch.evaluation import metrics
from bosch.evaluation.metrics import chinese_words, rouge_l, token_f1_zh

SENTENCE, WORDS = "我来到北京清华大学", ["我", "来到", "北京", "清华大学"]


@pytest.fixture
def fresh_segmenter():
    metrics._segmenter.cache_clear()
    yield
    metrics._segmenter.cache_clear()


def test_words():
    assert chinese_words(SENTENCE) == WORDS
    assert chinese_words("华为 Mate 60\n") == ["华为", " ", "Mate", " ", "60", "\n"]
    assert chinese_words("") == []


def test_words_that_a_program_added_for_itself_do_not_change_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    jieba = importlib.import_module("jieba")
    jieba.initialize()
    monkeypatch.setitem(jieba.dt.FREQ, "到北", 10**9)
    assert "到北" in jieba.lcut(SENTENCE)  # the word works, so its absence below says something
    assert chinese_words(SENTENCE) == WORDS


def test_a_dictionary_left_in_the_temporary_directory_is_not_read(fresh_segmenter, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "jieba.cache").write_bytes(marshal.dumps(({"京清": 10**9, "京": 0, "清": 0}, 10**9)))
    assert "京清" in importlib.import_module("jieba").Tokenizer().lcut(SENTENCE)  # the trap works
    capfd.readouterr()
    assert chinese_words(SENTENCE) == WORDS
    assert capfd.readouterr().err == ""


def test_missing_libraries_name_the_extra(fresh_segmenter, monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    monkeypatch.setitem(sys.modules, "rouge", None)
    with pytest.raises(
        BoschError, match=r"cutting Chinese into words needs jieba, .*: pip install 'bosch-swa\[eval\]'"
    ):
        token_f1_zh("北京", ["北京"])
    with pytest.raises(BoschError, match=r"ROUGE-L needs rouge, .*: pip install 'bosch-swa\[eval\]'"):
        rouge_l("cat", ["cat"])


def test_a_library_that_breaks_at_import_says_why(fresh_segmenter, tmp_path, monkeypatch):
    (tmp_path / "jieba.py").write_text("raise ImportError('built for another Python')")
    monkeypatch.delitem(sys.modules, "jieba", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BoschError, match=r"needs jieba, which cannot be imported \(built for another Python\)"):
        chinese_words("北京")
