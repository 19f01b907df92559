# ruff: noqa: RUF001 - Chinese texts have Chinese punctuation
import string

import pytest

from bosch.errors import BoschError
from bosch.evaluation.longbench import CATEGORIES, TASKS, Document
from bosch.evaluation.results import LONGBENCH

# The paper's B.6, word by word, in LongBench's spelling of the tasks.
PAPER = {
    "Single-document QA": {"multifieldqa_en", "multifieldqa_zh", "narrativeqa", "qasper"},
    "Multi-document QA": {"2wikimqa", "hotpotqa", "musique", "dureader"},
    "Summarization": {"gov_report", "multi_news", "qmsum", "vcsum", "samsum"},
    "Few-shot learning": {"trec", "triviaqa", "lsht"},
    "Synthetic Tasks": {"passage_retrieval_en", "passage_retrieval_zh", "passage_count"},
    "Code Completion": {"lcc", "repobench-p"},
    "Math Reasoning": {"gsm8k"},
}

# LongBench's lengths of answers: tasks by the number of tokens.
ANSWER_TOKENS = {
    32: {
        "hotpotqa",
        "2wikimqa",
        "musique",
        "triviaqa",
        "passage_count",
        "passage_retrieval_en",
        "passage_retrieval_zh",
    },
    64: {"multifieldqa_en", "multifieldqa_zh", "trec", "lsht", "lcc", "repobench-p"},
    128: {"narrativeqa", "qasper", "dureader", "samsum"},
    512: {"gov_report", "qmsum", "multi_news", "vcsum"},
}


def test_categories_are_the_papers():
    assert {category: set(tasks) for category, tasks in LONGBENCH.categories.items()} == PAPER
    assert list(LONGBENCH.categories) == [*CATEGORIES, "Math Reasoning"]
    assert len(TASKS) == 21


def test_answers_are_as_long_as_in_the_benchmark():
    assert {task.name: task.max_new_tokens for task in TASKS.values()} == {
        name: length for length, names in ANSWER_TOKENS.items() for name in names
    }


def test_tasks_that_are_continued_rather_than_answered():
    few_shot = {"trec", "triviaqa", "samsum", "lsht"}
    assert {task.name for task in TASKS.values() if task.first_line_only} == few_shot
    assert {task.name for task in TASKS.values() if not task.uses_chat} == few_shot | {"lcc", "repobench-p"}


def test_languages():
    by_language = {language: {t.name for t in TASKS.values() if t.language == language} for language in ("zh", "code")}
    assert by_language == {
        "zh": {"multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh"},
        "code": {"lcc", "repobench-p"},
    }


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_prompts_hold_context_and_question_once(task):
    places = [name for _, name, _, _ in string.Formatter().parse(task.template) if name]
    has_question = task.name not in ("gov_report", "multi_news", "vcsum", "passage_count", "lcc")
    assert places == ["context", "input"] if has_question else ["context"]
    prompt = task.prompt(Document("{input} {0} {}", "{context}", ("x",)))  # braces of the data are left alone
    assert prompt.count("{input} {0} {}") == 1
    assert prompt.count("{context}") == has_question


@pytest.mark.parametrize(
    ("task", "ending"),
    [
        ("narrativeqa", "Question: Q?\n\nAnswer:"),
        ("qasper", "Question: Q?\n\nAnswer:"),
        ("multifieldqa_en", "Question: Q?\nAnswer:"),
        ("multifieldqa_zh", "问题：Q?\n回答："),
        ("hotpotqa", "Question: Q?\nAnswer:"),
        ("dureader", "问题：Q?\n回答："),
        ("gov_report", "Summary:"),
        ("qmsum", "Query: Q?\nAnswer:"),
        ("vcsum", "会议总结："),
        ("samsum", "LONG\n\nQ?"),
        ("triviaqa", "LONG\n\nQ?"),
        ("trec", "LONG\nQ?"),
        ("lsht", "LONG\nQ?"),
        ("passage_count", "The final answer is: "),
        ("passage_retrieval_en", "The answer is: "),
        ("passage_retrieval_zh", "答案是："),
        ("lcc", "LONGNext line of code:\n"),
        ("repobench-p", "LONGQ?Next line of code:\n"),
    ],
)
def test_prompts_end_where_the_model_goes_on(task, ending):
    assert TASKS[task].prompt(Document("LONG", "Q?", ("x",))).endswith(ending)


@pytest.mark.parametrize(
    ("task", "answer", "references", "expected"),
    [
        ("narrativeqa", "The cat.", ["cat"], 1),  # F1
        ("2wikimqa", "cat\nQuestion: dog", ["cat"], 2 / 4),  # all lines count: cat question dog | cat
        ("triviaqa", "\ncat\nQuestion: dog", ["cat"], 1),  # the first line alone
        ("multifieldqa_zh", "北京！", ["北京"], 1),
        ("gov_report", "cat, sat", ["cat sat"], 1 / 2),  # ROUGE-L counts punctuation
        ("samsum", "cat sat\ndog", ["cat sat"], 1),
        ("dureader", "清华大学北京", ["北京清华大学"], 1 / 2),
        ("trec", "Food\nType: Date", ["Food"], 1),
        ("lsht", "Food Date\nType: Date", ["Food"], 1 / 2),
        ("passage_count", "17 or 18", ["17"], 1 / 2),
        ("passage_retrieval_en", "Paragraph 7", ["Paragraph 7"], 1),
        ("passage_retrieval_zh", "段落7", ["段落7"], 1),
        ("lcc", "# so\nabcd", ["bcde"], 3 / 4),
        ("repobench-p", "abcd\nx", ["abcd"], 1),
    ],
)
def test_each_task_has_its_score(task, answer, references, expected):
    document = Document("", "", tuple(references), ("Food", "Date"))
    assert TASKS[task].score(answer, document) == pytest.approx(expected, abs=2e-8)


def test_a_classification_without_classes_is_refused():
    with pytest.raises(BoschError, match="a classification needs the names of all classes"):
        TASKS["trec"].score("Food", Document("", "", ("Food",)))
