"""What a training is asked to do, beside its model and its text. The command line's options are made from these
fields."""

import dataclasses
import math

from bosch.errors import BoschError
from bosch.experiment.settings import check_integer, option

PRECISIONS = ("auto", "bfloat16", "float32")

RESOURCES = {"checkpoint_every", "keep_checkpoints", "evaluate_every", "trackers"}
"""Settings that change nothing of what is learned: a training may be resumed with others."""


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
    checkpoint_every: int | None = option("tokens between checkpoints; by default only the end is one", None)
    keep_checkpoints: int = option("how many of the last checkpoints are kept", 2)
    evaluate_every: int | None = option("tokens between evaluations, which also begin and end the training", None)
    trackers: tuple[str, ...] = option("comma-separated trackers of accelerate, such as tensorboard", ())
    seed: int = option("of the order of the sequences, and of dropout", 0)

    def __post_init__(self) -> None:
        for name in ("tokens", "tokens_per_step", "micro_batch", "keep_checkpoints"):
            check_integer(name, getattr(self, name), 1)
        for name in ("checkpoint_every", "evaluate_every"):
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
