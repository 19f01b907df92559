"""Our needle tasks laid out as lm-eval's generator lays them out: template, needles, positions, lengths.

The generator's words and depths are drawn otherwise, so what is compared is the layout of many samples.
"""

import random
import re
from statistics import fmean

import pytest

from bosch.calibration import TASKS, make_examples
from bosch.calibration.haystack import shipped_prose
from calibration.small_tokenizers import byte_level
from marks import slow_after

pytest.importorskip("lm_eval")
pytest.importorskip("wonderwords")

NEEDLE = re.compile(r"One of the special magic (\w+) for ([\w-]+) is: ([\w-]+)\.")
PATTERNS = {
    "numbers": r"\d{7}",
    "words": r"[a-z-]+",
    "uuids": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}
KINDS = {"noise": "repeat", "prose": "essay", "needles": "needle"}
# The generator measures prose off in steps of 500 words: below some thousand tokens it may find room for none.
LENGTH, COUNT, ANSWER_TOKENS = 4096, 24, 128

LINES_OF_A_STEP = 25


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level(split_digits=True)


@pytest.fixture(scope="module")
def generate(tokenizer):
    """The prompts and answers of lm-eval's generator, with the shipped prose in place of essays from the hub."""
    from lm_eval.tasks.ruler import niah_utils, prepare_niah

    def sentences(text):
        return re.split(r"(?<=[.!?])\s+", text)

    def make(task):
        haystack = (
            shipped_prose().split() if task.haystack == "prose" else prepare_niah.get_haystack(KINDS[task.haystack])
        )
        random.seed(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(prepare_niah, "cached_sent_tokenize", sentences)  # nltk's wants a download
            return prepare_niah.generate_samples(
                haystack,
                tokenizer,
                max_seq_length=LENGTH,
                template=niah_utils.TEMPLATE,
                type_haystack=KINDS[task.haystack],
                type_needle_k=task.key,
                type_needle_v=task.value,
                num_needle_k=task.num_keys,
                num_samples=COUNT,
                tokens_to_generate=ANSWER_TOKENS,
            )

    return make


def frame(prompt: str, key: str) -> str:
    """The prompt without its context and its key."""
    head, _, rest = prompt.partition("\n")
    context, _, question = rest.rpartition("\n")
    assert context
    return f"{head}\n{question}".replace(key, "KEY")


def place(context: str, key: str) -> float:
    return next(match.start() for match in NEEDLE.finditer(context) if match[2] == key) / len(context)


@pytest.mark.parametrize("name", slow_after(1, sorted(TASKS)))
def test_layout(name, generate, tokenizer):
    task = TASKS[name]
    theirs = [(f"{sample['input']} {sample['gen_prefix']}", sample["outputs"][0]) for sample in generate(task)]
    made = make_examples(
        tokenizer, tasks=[name], lengths=[LENGTH], num_examples=COUNT, seed=5, split="heldout"
    ).examples
    ours = [(example.prompt, example.answer) for example in made]
    assert len(theirs) == len(ours) == COUNT
    counts, places = {}, {}
    for origin, samples in (("theirs", theirs), ("ours", ours)):
        for prompt, answer in samples:
            key = re.search(r"for ([\w-]+) mentioned in the provided text is$", prompt)[1]
            assert re.fullmatch(PATTERNS[task.key], key)
            assert re.fullmatch(PATTERNS[task.value], answer)
            context = prompt.partition("\n")[2].rpartition("\n")[0]
            found = NEEDLE.findall(context)
            assert [value for _, other, value in found if other == key] == [answer]
            assert {kind for kind, _, _ in found} == {task.value}
            counts.setdefault(origin, []).append(len(found))
            places.setdefault(origin, []).append(place(context, key))
            lines = context.split("\n")
            alone = [line for line in lines if NEEDLE.fullmatch(line)]
            assert len(alone) == (0 if task.haystack == "prose" else len(found))  # a line of their own, or in the prose
            assert len(lines) == 1 if task.haystack == "prose" else len(lines) > 5
    keys = [re.search(r"for ([\w-]+) mentioned", prompt)[1] for prompt, _ in (theirs[0], ours[0])]
    assert frame(ours[0][0], keys[1]) == frame(theirs[0][0], keys[0])
    if task.haystack == "needles":  # every line is one; the generator leaves room for an answer, and goes in steps
        most = fmean(counts["ours"]) * (LENGTH - ANSWER_TOKENS) / LENGTH
        assert most - LINES_OF_A_STEP - 1 <= fmean(counts["theirs"]) <= most + 1
    else:
        assert set(counts["theirs"]) == set(counts["ours"]) == {task.num_keys}
    for found in places.values():  # at the beginning, at the end, and evenly between
        assert min(found) < 0.25
        assert max(found) > 0.75
        assert 0.3 < fmean(found) < 0.7


@pytest.mark.parametrize("name", slow_after(1, sorted(TASKS)))
def test_length_bounds(name, generate, tokenizer):
    """Both keep prompt and answer within the length; the generator leaves 128 tokens for any answer."""
    task = TASKS[name]
    longest_unit = {"noise": 26, "prose": 12, "needles": 90}[task.haystack]
    for sample in generate(task):
        assert len(tokenizer(sample["input"])["input_ids"]) <= LENGTH - ANSWER_TOKENS
    made = make_examples(
        tokenizer, tasks=[name], lengths=[LENGTH], num_examples=COUNT, seed=5, split="heldout"
    ).examples
    for example in made:
        num_tokens = len(tokenizer(f"{example.prompt} {example.answer}")["input_ids"])
        assert LENGTH - longest_unit <= num_tokens <= LENGTH
