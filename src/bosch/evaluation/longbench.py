"""LongBench's data as it is published: a file of JSON lines for each task."""

# ruff: noqa: RUF001 - the Chinese prompts have Chinese punctuation

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from bosch.common.files import read_json_lines, take_fields
from bosch.errors import BoschError
from bosch.evaluation import metrics


@dataclasses.dataclass(frozen=True)
class Document:
    """One example of a task.

    Args:
        context: the long text.
        input: the question or instruction that goes with it; empty where the task has only one.
        answers: references, at least one.
        classes: names of all classes where the task is to classify, else empty.
    """

    context: str
    input: str
    answers: tuple[str, ...]
    classes: tuple[str, ...] = ()


def read_documents(directory: Path, task: str, limit: int | None = None) -> tuple[Document, ...]:
    """The documents of a task from `directory/<task>.jsonl`, in the order of the file.

    Args:
        directory: where the benchmark's `data.zip` was unpacked.
        task: the task's name.
        limit: so many from the beginning, at least 1; by default all.

    Raises:
        BoschError: the file is missing, unreadable or empty, or a line is not as published; the line is named.
    """
    origin = "unpack LongBench's data.zip (data set THUDM/LongBench) there; it holds a file for each task"
    return read_json_lines(directory / f"{task}.jsonl", lambda data: _document(data, task), origin=origin, limit=limit)


def _document(data: Any, task: str) -> Document:
    kinds = {"context": str, "input": str, "answers": list, "dataset": str}
    fields = take_fields(data, kinds)
    if fields["dataset"] != task:
        raise BoschError(f"it is of the data set {fields['dataset']!r:.40}, expected {task!r}")
    answers, classes = fields["answers"], data.get("all_classes") or []
    if not answers or not all(isinstance(answer, str) for answer in answers):
        raise BoschError(f"answers must be a list of at least one text, found {answers!r:.40}")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise BoschError(f"all_classes must be null or a list of texts, found {classes!r:.40}")
    return Document(fields["context"], fields["input"], tuple(answers), tuple(classes))


CATEGORIES = (
    "Single-document QA",
    "Multi-document QA",
    "Summarization",
    "Few-shot learning",
    "Synthetic Tasks",
    "Code Completion",
)
"""In the paper's order. The paper (B.6) counts samsum as summarization; LongBench itself, as few-shot learning."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One task.

    Args:
        name: LongBench's name of it.
        category: one of `CATEGORIES`.
        language: of its texts.
        metric: its score, from answer and references to a number from 0 to 1; that of a classification takes the
            classes as well.
        max_new_tokens: length of an answer at most, in tokens.
        template: the prompt, with places for `{context}` and `{input}`.
        uses_chat: whether LongBench asks a chat model through its chat template: not where the prompt is to be
            continued.
        first_line_only: whether only the answer's first line is scored.
    """

    name: str
    category: str
    language: Literal["en", "zh", "code"]
    metric: Callable[..., float]
    max_new_tokens: int
    template: str
    uses_chat: bool = True
    first_line_only: bool = False

    def prompt(self, document: Document) -> str:
        """The whole prompt, however long."""
        return self.template.format(context=document.context, input=document.input)

    def score(self, answer: str, document: Document) -> float:
        """Score of a generated answer, from 0 to 1.

        Raises:
            BoschError: a library that the score needs is not installed, or the document is not one of this task.
        """
        if self.first_line_only:
            answer = metrics.first_line(answer)
        if self.metric is metrics.classification:
            return metrics.classification(answer, document.answers, document.classes)
        return self.metric(answer, document.answers)


_PASSAGES = (
    "Answer the question based on the given passages. Only give me the answer and do not output any other words.\n\n"
    "The following are given passages.\n{context}\n\n"
    "Answer the question based on the given passages. Only give me the answer and do not output any other words.\n\n"
    "Question: {input}\nAnswer:"
)

_STORY = (
    "You are given a story, which can be either a novel or a movie script, and a question. "
    "Answer the question asconcisely as you can, using a single phrase if possible. Do not provide any explanation.\n\n"
    "Story: {context}\n\n"
    "Now, answer the question based on the story asconcisely as you can, using a single phrase if possible. "
    "Do not provide any explanation.\n\n"
    "Question: {input}\n\nAnswer:"
)

_ARTICLE = (
    "You are given a scientific article and a question. Answer the question as concisely as you can, using a single "
    "phrase or sentence if possible. If the question cannot be answered based on the information in the article, write "
    '"unanswerable". If the question is a yes/no question, answer "yes", "no", or "unanswerable". Do not provide any '
    "explanation.\n\n"
    "Article: {context}\n\n"
    " Answer the question based on the above article as concisely as you can, using a single phrase or sentence if "
    "possible. If the question cannot be answered based on the information in the article, write "
    '"unanswerable". If the question is a yes/no question, answer "yes", "no", or "unanswerable". Do not provide any '
    "explanation.\n\n"
    "Question: {input}\n\nAnswer:"
)

TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task("narrativeqa", "Single-document QA", "en", metrics.token_f1, 128, _STORY),
        Task("qasper", "Single-document QA", "en", metrics.token_f1, 128, _ARTICLE),
        Task(
            "multifieldqa_en",
            "Single-document QA",
            "en",
            metrics.token_f1,
            64,
            "Read the following text and answer briefly.\n\n{context}\n\n"
            "Now, answer the following question based on the above text, only give me the answer and do not output any "
            "other words.\n\nQuestion: {input}\nAnswer:",
        ),
        Task(
            "multifieldqa_zh",
            "Single-document QA",
            "zh",
            metrics.token_f1_zh,
            64,
            "阅读以下文字并用中文简短回答：\n\n{context}\n\n"
            "现在请基于上面的文章回答下面的问题，只告诉我答案，不要输出任何其他字词。\n\n问题：{input}\n回答：",
        ),
        Task("hotpotqa", "Multi-document QA", "en", metrics.token_f1, 32, _PASSAGES),
        Task("2wikimqa", "Multi-document QA", "en", metrics.token_f1, 32, _PASSAGES),
        Task("musique", "Multi-document QA", "en", metrics.token_f1, 32, _PASSAGES),
        Task(
            "dureader",
            "Multi-document QA",
            "zh",
            metrics.rouge_l_zh,
            128,
            "请基于给定的文章回答下述问题。\n\n文章：{context}\n\n请基于上述文章回答下面的问题。\n\n问题：{input}\n回答：",
        ),
        Task(
            "gov_report",
            "Summarization",
            "en",
            metrics.rouge_l,
            512,
            "You are given a report by a government agency. Write a one-page summary of the report.\n\n"
            "Report:\n{context}\n\nNow, write a one-page summary of the report.\n\nSummary:",
        ),
        Task(
            "qmsum",
            "Summarization",
            "en",
            metrics.rouge_l,
            512,
            "You are given a meeting transcript and a query containing a question or instruction. "
            "Answer the query in one or more sentences.\n\n"
            "Transcript:\n{context}\n\n"
            "Now, answer the query based on the above meeting transcript in one or more sentences.\n\n"
            "Query: {input}\nAnswer:",
        ),
        Task(
            "multi_news",
            "Summarization",
            "en",
            metrics.rouge_l,
            512,
            "You are given several news passages. Write a one-page summary of all news. \n\n"
            "News:\n{context}\n\nNow, write a one-page summary of all the news.\n\nSummary:",
        ),
        Task(
            "vcsum",
            "Summarization",
            "zh",
            metrics.rouge_l_zh,
            512,
            "下面有一段会议记录，请你阅读后，写一段总结，总结会议的内容。\n会议记录：\n{context}\n\n会议总结：",
        ),
        Task(
            "samsum",
            "Summarization",
            "en",
            metrics.rouge_l,
            128,
            "Summarize the dialogue into a few short sentences. The following are some examples.\n\n"
            "{context}\n\n{input}",
            uses_chat=False,
            first_line_only=True,
        ),
        Task(
            "trec",
            "Few-shot learning",
            "en",
            metrics.classification,
            64,
            "Please determine the type of the question below. Here are some examples of questions.\n\n"
            "{context}\n{input}",
            uses_chat=False,
            first_line_only=True,
        ),
        Task(
            "triviaqa",
            "Few-shot learning",
            "en",
            metrics.token_f1,
            32,
            "Answer the question based on the given passage. Only give me the answer and do not output any other "
            "words. The following are some examples.\n\n{context}\n\n{input}",
            uses_chat=False,
            first_line_only=True,
        ),
        Task(
            "lsht",
            "Few-shot learning",
            "zh",
            metrics.classification,
            64,
            "请判断给定新闻的类别，下面是一些例子。\n\n{context}\n{input}",
            uses_chat=False,
            first_line_only=True,
        ),
        Task(
            "passage_count",
            "Synthetic Tasks",
            "en",
            metrics.count,
            32,
            "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. Please carefully "
            "read these paragraphs and determine how many unique paragraphs there are after removing duplicates. In "
            "other words, how many non-repeating paragraphs are there in total?\n\n{context}\n\n"
            "Please enter the final count of unique paragraphs after removing duplicates. The output format should "
            "only contain the number, such as 1, 2, 3, and so on.\n\nThe final answer is: ",
        ),
        Task(
            "passage_retrieval_en",
            "Synthetic Tasks",
            "en",
            metrics.retrieval,
            32,
            "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which paragraph the "
            "abstract is from.\n\n{context}\n\nThe following is an abstract.\n\n{input}\n\n"
            "Please enter the number of the paragraph that the abstract is from. The answer format must be like "
            '"Paragraph 1", "Paragraph 2", etc.\n\nThe answer is: ',
        ),
        Task(
            "passage_retrieval_zh",
            "Synthetic Tasks",
            "zh",
            metrics.retrieval_zh,
            32,
            "以下是若干段落文字，以及其中一个段落的摘要。请确定给定的摘要出自哪一段。\n\n{context}\n\n"
            "下面是一个摘要\n\n{input}\n\n"
            '请输入摘要所属段落的编号。答案格式必须是"段落1"，"段落2"等格式\n\n答案是：',
        ),
        Task(
            "lcc",
            "Code Completion",
            "code",
            metrics.code_similarity,
            64,
            "Please complete the code given below. \n{context}Next line of code:\n",
            uses_chat=False,
        ),
        Task(
            "repobench-p",
            "Code Completion",
            "code",
            metrics.code_similarity,
            64,
            "Please complete the code given below. \n{context}{input}Next line of code:\n",
            uses_chat=False,
        ),
    )
}
