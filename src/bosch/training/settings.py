"""What a training is asked to do, beside its model and its text. The command line's options are made from these
fields."""

import dataclasses
import math

from bosch.calibration.tasks import DEFAULT_TASKS, TASKS
from bosch.common.lookup import lookup
from bosch.common.options import TRUST_HELP, check_integer, option
from bosch.errors import BoschError

NEEDLES = "needles"
"""Among the sources of data, the documents of `bosch.training.needles`; a file of that name is `./needles`."""

PRECISIONS = ("auto", "bfloat16", "float32")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """All that determines a training, given its model and its sequences. Each field's help is in its metadata; the
    defaults are the paper's (B.5), and torch's of AdamW for what the paper does not say.

    Raises:
        BoschError: a value out of range; what needs the model or the sequences to be judged is judged later.
    """

    tokens: int = option("tokens to train on; text is read again from its beginning where it does not suffice")
    tokens_per_step: int = option("tokens of one optimizer step, on all processes together", 2**21)
    micro_batch: int = option("sequences that one process takes at once", 1)
    learning_rate: float = option("the largest, reached after the warm-up; it falls to 0 along a cosine", 1e-5)
    warmup: float = option("share of the steps in which the learning rate rises", 0.1)
    weight_decay: float = option("of AdamW, on matrices; norms and biases are left alone", 0.01)
    max_gradient_norm: float = option("longer gradients are scaled to this length", 1.0)
    gradient_checkpointing: bool = option("keep only the states between layers, and compute the others again", False)
    precision: str = option(
        "float32, bfloat16 (mixed), or auto: bfloat16 where the hardware multiplies it fast", "auto"
    )
    save_every: int | None = option("tokens between checkpoints; by default only the end is one", None)
    keep_last: int = option("how many of the last checkpoints are kept", 2)
    eval_every: int | None = option("tokens between evaluations, which also begin and end the training", None)
    trackers: tuple[str, ...] = option("trackers of accelerate, such as tensorboard", ())
    seed: int = option("of the order of the sequences, and of dropout", 0)

    def __post_init__(self) -> None:
        for name in ("tokens", "tokens_per_step", "micro_batch", "keep_last"):
            check_integer(name, getattr(self, name), 1)
        for name in ("save_every", "eval_every"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        check_integer("seed", self.seed, 0)
        for name in ("learning_rate", "max_gradient_norm"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BoschError(f"{name} must be a positive number, got {value!r}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise BoschError(f"weight_decay must be a number of at least 0, got {self.weight_decay!r}")
        if not 0 <= self.warmup <= 1:
            raise BoschError(f"warmup must be a share of the steps from 0 to 1, got {self.warmup!r}")
        if self.precision not in PRECISIONS:
            raise BoschError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")

    @property
    def num_steps(self) -> int:
        """Steps of the optimizer; the last one is whole."""
        return -(-self.tokens // self.tokens_per_step)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainSettings(TrainSettings):
    """The same, and what is trained on and how it is judged.

    Raises:
        BoschError: a value out of range; what needs the model, the text or the tokenizer is judged later.
    """

    texts: tuple[str, ...] = option(
        f"files, directories, data sets of the hub, or {NEEDLES!r}: documents that hide a needle"
    )
    weights: tuple[float, ...] = option("share of each source, in tokens and in proportion; by default all alike", ())
    field: str = option("what holds the text in JSON lines, Parquet and data sets of the hub", "text")
    split: str = option("of data sets of the hub", "train")
    subset: str | None = option("of a data set of the hub that has several", None)
    sequence_length: int = option("tokens of a sequence", 32_768)
    documents_apart: bool = option("documents of one sequence do not see each other", False)
    answers_only: bool = option("of documents with a question, only the answer is learned", False)
    distill: bool = option("learn the original model's probabilities in place of the text's own next tokens", False)
    lora_rank: int | None = option("train adapters of this rank; by default all weights", None)
    tasks: tuple[str, ...] = option("needle tasks", DEFAULT_TASKS)
    lengths: tuple[int, ...] = option("tokens of needle documents and held-out examples, answers included", (512,))
    heldout: int = option("held-out examples of an evaluation, the same for every seed", 32)
    haystack: str | None = option("a UTF-8 text file to hide held-out needles in; by default the shipped text", None)
    needle_haystack: str | None = option("the same for needle documents", None)
    chat: bool = option("ask through the tokenizer's chat template", False)
    trust_remote_code: bool = option(TRUST_HELP, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.texts or not self.tasks or not self.lengths:
            raise BoschError("at least one source of text, one task and one length are needed")
        if self.weights and len(self.weights) != len(self.texts):
            raise BoschError(f"weights must be as many as there are sources ({len(self.texts)}), got {self.weights}")
        for name in ("heldout", "sequence_length"):
            check_integer(name, getattr(self, name), 1)
        if self.lora_rank is not None:
            check_integer("lora_rank", self.lora_rank, 1)
        for task in self.tasks:
            lookup("task", task, TASKS)
        for length in self.lengths:
            check_integer("length", length, 1)
        if NEEDLES in self.texts and max(self.lengths) >= self.sequence_length:
            raise BoschError(
                f"sequences of {self.sequence_length} tokens cut every needle document of {max(self.lengths)} tokens "
                "and an end, many between needle and answer; expected sequence_length to be several times that"
            )
