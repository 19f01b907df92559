"""Train the tiny needle-answering model that the tests search: `python scripts/train_tiny_model.py tests/models/tiny`.

A Qwen3 of 6 layers, each of 8 query heads in 4 KV groups, learns from scratch to find a number in noise and in prose.
Lessons grow from repeated numbers to whole prompts, and each has many answers to learn from: that is what makes the
heads that look up earlier text appear within minutes. Only keys and values of the calibration split are seen. Telling
several keys apart is practised as well, but is not learnt in so few steps: the tests use the tasks with one key.

It took 26 minutes on a busy CPU of 2 cores. Everything is seeded and runs in one thread; other processors or other
versions of torch may round differently, and then give other weights of the same ability.
"""

import argparse
import dataclasses
import functools
import itertools
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from bosch.calibration import TASKS, make_examples
from bosch.calibration.haystack import NOISE, shipped_prose, split_prose
from bosch.calibration.items import draw_items, words

SEED = 0
TOKENS_PER_STEP = 4096

PIECE = r"\d{1,2}|[^\W\d_]+|[^\w\s]|_"
"""A token: two digits, a word, or a sign. White space only separates, so a text's tokens are those of its parts."""

PRACTISED = [TASKS[name] for name in ("niah_single_1", "niah_multikey_1", "niah_multikey_2")]
"""One task for each haystack; the number of keys is drawn."""

NEEDLE = PRACTISED[0].needle("{}", "").removesuffix(".")
"""A needle up to its value."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training: steps, tokens of a lesson, and how many of ten lessons are of each kind."""

    num_steps: int
    length: int
    lessons: dict[str, int]


PHASES = (
    Phase(120, 32, {"echo": 10}),
    Phase(250, 96, {"pairs": 10}),
    Phase(200, 128, {"pairs": 2, "needles": 6, "prompt": 2}),
    Phase(250, 192, {"needles": 3, "prompt": 7}),
    Phase(300, 256, {"needles": 3, "prompt": 7}),
)


def build_tokenizer(min_count: int = 3) -> PreTrainedTokenizerFast:
    """A lower-casing WordPiece tokenizer that knows the tasks' wording, all keys, numbers, and frequent words of prose.

    Rarer words fall into letters, so that no text of the tasks has an unknown token.

    Args:
        min_count: how often the shipped prose must use a word that is to be a token.
    """
    wording = [*NOISE, *words("adjectives"), *words("nouns")]
    for task in TASKS.values():
        wording += [task.needle("", ""), task.question("", ""), task.answer_prefix("")]
    prose = Counter(re.findall(PIECE, shipped_prose().lower()))
    known = sorted({*re.findall(PIECE, " ".join(wording).lower()), *(w for w, n in prose.items() if n >= min_count)})
    numbers = [*map(str, range(10)), *(f"{number:02d}" for number in range(100))]
    signs = sorted({sign for word in [*known, *prose] for sign in word})
    tokens = ["<unk>", "<pad>", "<bos>", *numbers, *signs, *(f"##{sign}" for sign in signs if sign.isalpha()), *known]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), behavior="removed", invert=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", vocabulary["<bos>"])]
    )
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", bos_token="<bos>", model_max_length=1024
    )


class Lesson:
    """Tokens to read, some of them to be predicted from all that stands before them."""

    def __init__(self, bos: int) -> None:
        self.ids = [bos]
        self.learn = [False]

    def say(self, ids: Sequence[int], learn: bool = False) -> None:
        """Append tokens."""
        self.ids += ids
        self.learn += [learn] * len(ids)


class Teacher:
    """Makes lessons of at most a given number of tokens, at random. The kinds are the methods `echo` to `prompt`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> None:
        self._tokenizer, self._rng = tokenizer, rng
        self._prose = [self._ids(" ".join(sentence)) for sentence in split_prose(shipped_prose())]
        self._noise = [self._ids(sentence) for sentence in NOISE]

    def batch(self, phase: Phase) -> tuple[Tensor, Tensor]:
        """Lessons of a phase: token ids (B, T) int64, padded, and which of them are to be predicted (B, T) bool."""
        kinds = self._rng.choices([*phase.lessons], [*phase.lessons.values()], k=TOKENS_PER_STEP // phase.length)
        ids = torch.full((len(kinds), phase.length), self._tokenizer.pad_token_id)
        learn = torch.zeros(ids.shape, dtype=torch.bool)
        for row, kind in enumerate(kinds):
            lesson = getattr(self, kind)(phase.length)
            ids[row, : len(lesson.ids)] = torch.tensor(lesson.ids)
            learn[row, : len(lesson.learn)] = torch.tensor(lesson.learn)
        return ids, learn

    def echo(self, length: int) -> Lesson:
        """A row of random numbers again and again, with a few others between; all but each row's first follow."""
        lesson = Lesson(self._tokenizer.bos_token_id)
        row = self._numbers(self._rng.randrange(4, length // 2))
        repeated = False
        while len(lesson.ids) + len(row) + 2 <= length:
            lesson.say(row[:1])
            lesson.say(row[1:], learn=repeated)
            lesson.say(self._numbers(self._rng.randrange(3)))
            repeated = True
        return lesson

    def pairs(self, length: int) -> Lesson:
        """Lines of a key and its value, each key again and again: as in its line, or as it is asked for."""
        asked = ["{}:", "{} mentioned in the provided text is"]
        return self._recall(length, "{}:", asked, tokens_per_line=9)

    def needles(self, length: int) -> Lesson:
        """Needles, each key again and again: as a needle, or as it is asked for."""
        return self._recall(length, NEEDLE, [NEEDLE, PRACTISED[0].answer_prefix("{}")], tokens_per_line=17)

    def prompt(self, length: int) -> Lesson:
        """A prompt of a task, with more keys of the same text asked for after its own where there is room."""
        task = self._rng.choice(PRACTISED)
        before, _ = task.question("", "").split("\n\n")
        lesson = Lesson(self._tokenizer.bos_token_id)
        lesson.say(self._ids(before))
        room = length - len(lesson.ids) - 16  # the question
        num_asked = self._rng.randint(1, room // 35)  # a needle, an answer prefix and an answer
        room -= 18 * num_asked
        num_needles = (
            room // 17
            if task.haystack == "needles"
            else self._rng.randint(num_asked, max(num_asked, min(4, room // 17)))
        )
        pairs = self._pairs(num_needles)
        for segment in self._hide(pairs, task.haystack, room - 17 * num_needles):
            lesson.say(segment)
        asked = self._rng.sample(pairs, num_asked)
        lesson.say(self._ids(task.question("", asked[0][0]).split("\n\n")[1]))
        for key, value in asked:
            lesson.say(self._ids(task.answer_prefix(key)))
            lesson.say(self._ids(value), learn=True)
        return lesson

    def _recall(self, length: int, told: str, asked: Sequence[str], tokens_per_line: int) -> Lesson:
        lesson = Lesson(self._tokenizer.bos_token_id)
        pairs = self._pairs(self._rng.randint(2, max(2, length // (2 * tokens_per_line))))
        again = ((self._rng.choice(asked), *self._rng.choice(pairs)) for _ in itertools.count())
        for index, (form, key, value) in enumerate(itertools.chain(((told, *pair) for pair in pairs), again)):
            line = self._ids(form.format(key)), self._ids(value), self._ids(".")
            if len(lesson.ids) + sum(map(len, line)) > length:
                break
            lesson.say(line[0])
            lesson.say(line[1], learn=index >= len(pairs))
            lesson.say(line[2])
        return lesson

    def _hide(self, pairs: Sequence[tuple[str, str]], haystack: str, room: int) -> Iterable[Sequence[int]]:
        """The segments of a haystack, `room` tokens of them, with the needles among them."""
        texts = []
        for segment in self._haystack(haystack):
            if not room:
                break
            texts.append(segment[:room])
            room -= len(texts[-1])
        for key, value in pairs:
            texts.insert(self._rng.randint(0, len(texts)), self._ids(f"{NEEDLE.format(key)} {value}."))
        return texts

    def _haystack(self, kind: str) -> Iterable[Sequence[int]]:
        if kind == "needles":
            return ()
        if kind == "noise":
            return itertools.cycle(self._noise)
        start = self._rng.randrange(len(self._prose))
        return itertools.islice(itertools.cycle(self._prose), start, None)

    def _pairs(self, number: int) -> list[tuple[str, str]]:
        keys, values = (draw_items(kind, "calibration", self._rng) for kind in ("words", "numbers"))
        return list(itertools.islice(zip(keys, values, strict=False), number))

    def _numbers(self, number: int) -> list[int]:
        return self._ids(" ".join(f"{self._rng.randrange(100):02d}" for _ in range(number)))

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal (Jordan et al. 2024), for matrices; all of one shape at once.

    `torch.optim.Muon` does the same one by one and in bfloat16, which small models on a CPU wait for.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.01):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        """Update every matrix from its gradient."""
        for group in self.param_groups:
            for alike in _by_shape(group["params"]):
                updates = torch.stack([self._momentum(matrix, group["momentum"]) for matrix in alike])
                for matrix, update in zip(alike, _orthogonal(updates), strict=True):
                    rows, columns = matrix.shape
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.sub_(update, alpha=group["lr"] * max(1, rows / columns) ** 0.5)

    def _momentum(self, matrix: Tensor, momentum: float) -> Tensor:
        mean = self.state[matrix].setdefault("mean", torch.zeros_like(matrix))
        mean.lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(mean, momentum)


def _by_shape(matrices: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    shapes: dict[torch.Size, list[Tensor]] = {}
    for matrix in matrices:
        shapes.setdefault(matrix.shape, []).append(matrix)
    return shapes.values()


def _orthogonal(matrices: Tensor) -> Tensor:
    """The nearest matrices, roughly, with all singular values 1: five Newton-Schulz steps; (N, rows, columns)."""
    if matrices.shape[1] > matrices.shape[2]:
        return _orthogonal(matrices.mT).mT
    result = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = result @ result.mT
        result = 3.4445 * result + (-4.7750 * square + 2.0315 * square @ square) @ result
    return result


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """The untrained model."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=tokenizer.model_max_length,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            torch.nn.init.constant_(parameter, 1.5)  # sharper attention from the start: it finds single tokens sooner
    return model


def train(model: Qwen3ForCausalLM, teacher: Teacher, phases: Sequence[Phase]) -> None:
    """Train in place; progress on stderr."""
    matrices = [parameter for layer in model.model.layers for parameter in layer.parameters() if parameter.ndim == 2]
    others = [parameter for parameter in model.parameters() if all(parameter is not matrix for matrix in matrices)]
    optimizers = [Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=4e-3, betas=(0.9, 0.98), weight_decay=0.0)]
    num_steps = sum(phase.num_steps for phase in phases)
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, functools.partial(_rate, num_steps)) for optimizer in optimizers
    ]
    steps = itertools.chain.from_iterable([phase] * phase.num_steps for phase in phases)
    start = time.monotonic()
    for step, phase in enumerate(steps, 1):
        loss, accuracy = _learn(model, *teacher.batch(phase))
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if step % 20 == 0:
            seconds = time.monotonic() - start
            print(
                f"step {step}/{num_steps} loss {loss:.3f} accuracy {accuracy:.3f} {seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def _rate(num_steps: int, step: int) -> float:
    """Warm up for 50 steps, hold, and from the middle on fall to 2 % along a cosine."""
    late = max(0.0, step / num_steps - 0.5) / 0.5
    return min(1.0, (step + 1) / 50) * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * late)))


def _learn(model: Qwen3ForCausalLM, ids: Tensor, learn: Tensor) -> tuple[float, float]:
    """Gradients of the mean loss of the tokens to be predicted; that loss, and the share of them predicted right."""
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1][learn[:, 1:]]
    logits, targets = model.lm_head(hidden), ids[:, 1:][learn[:, 1:]]
    loss = torch.nn.functional.cross_entropy(logits, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return loss.item(), (logits.argmax(-1) == targets).float().mean().item()


@torch.no_grad()
def heldout_accuracy(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, task: str, length: int) -> float:
    """The share of held-out examples of which every answer token is predicted."""
    examples = make_examples(
        tokenizer, tasks=[task], lengths=[length], num_examples=100, seed=SEED, split="heldout"
    ).examples
    hits = 0
    for example in examples:
        predicted = model(torch.tensor([example.input_ids])).logits[0].argmax(-1).tolist()
        answer = slice(example.answer_start, None)
        hits += predicted[example.answer_start - 1 : -1] == list(example.input_ids[answer])
    return hits / len(examples)


def main() -> None:
    """Train, write the model and its tokenizer, and print how well it answers held-out needles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="directory to write the model and the tokenizer to")
    output = parser.parse_args().output
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    train(model, Teacher(tokenizer, random.Random(SEED)), PHASES)
    tokenizer.save_pretrained(output)
    model.save_pretrained(output)
    for task in ("niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multikey_2"):
        for length in (192, 256):
            print(f"{task} at {length} tokens: {heldout_accuracy(model.eval(), tokenizer, task, length):.2f}")


if __name__ == "__main__":
    main()
