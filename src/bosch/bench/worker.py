"""The child process in which one model is measured, so that its peak memory is its own, and so is its death.

On standard input: a `Job` as text. On standard output, a JSON object a line: first `model`, what that is; then
for each context length a `measurement`; or an `error` that the user can mend."""

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedModel

from bosch.bench.measure import measure
from bosch.bench.settings import BenchSettings
from bosch.deploy.hybridize import hybridize
from bosch.deploy.layers import attention_layers, layout_of
from bosch.deploy.modeling_bosch import BoschMixin
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.models.loading import load_model, random_model
from bosch.models.positions import num_positions


@dataclasses.dataclass(frozen=True)
class Job:
    """One model, and the context lengths to measure it at.

    Args:
        settings: of the benchmark.
        contexts: those that are missing, ascending.
        mask: of the hybrid; None: the original.
    """

    settings: BenchSettings
    contexts: tuple[int, ...]
    mask: HeadMask | None

    def to_text(self) -> str:
        """The job as JSON."""
        mask = self.mask and self.mask.to_json()
        return json.dumps({"settings": dataclasses.asdict(self.settings), "contexts": self.contexts, "mask": mask})

    @classmethod
    def from_text(cls, text: str) -> "Job":
        """The job that `to_text` gave."""
        data = json.loads(text)
        settings: dict[str, Any] = {
            name: tuple(x) if isinstance(x, list) else x for name, x in data["settings"].items()
        }
        mask = data["mask"] and HeadMask.from_json(data["mask"])
        return cls(BenchSettings(**settings), tuple(data["contexts"]), mask)


def main() -> None:
    """Run one job."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not come between
    try:
        for reply in work(Job.from_text(sys.stdin.read())):
            replies.write(json.dumps(reply) + "\n")
    except BoschError as error:
        replies.write(json.dumps({"error": str(error)}) + "\n")


def work(job: Job) -> Iterator[dict[str, Any]]:
    """The replies.

    Raises:
        BoschError: the model cannot be had or made a hybrid, or has too few positions.
    """
    settings = job.settings
    model = open_model(settings)
    yield {"model": describe(model)}
    if job.mask is not None:
        hybridize(model, job.mask)
    options = {"chunk": settings.chunk, "new_tokens": settings.new_tokens, "seed": settings.seed}
    for measurement in measure(model, job.contexts, **options):
        yield {"measurement": dataclasses.asdict(measurement)}


def open_model(settings: BenchSettings) -> PreTrainedModel:
    """The original model, in eval mode, with as many positions as the longest sequence needs.

    Raises:
        BoschError: it cannot be had, is a hybrid already, or has too few positions.
    """
    options: dict[str, Any] = {
        "dtype": settings.dtype,
        "device": settings.device,
        "trust_remote_code": settings.trust_remote_code,
    }
    needed = settings.num_positions
    if settings.random_weights:
        model = random_model(settings.model, num_positions=needed, seed=settings.seed, **options)
    else:
        model, _ = load_model(settings.model, **options)
    if isinstance(model, BoschMixin):
        raise BoschError(f"{settings.model} is a hybrid already; expected the original model, and the mask beside it")
    positions = num_positions(model.config)
    if positions is not None and positions < needed:
        raise BoschError(
            f"a context of {max(settings.contexts)} tokens and those decoded after it need {needed} positions, but "
            f"{settings.model} has {positions}; choose shorter contexts, or random weights, which allow any"
        )
    return model


def describe(model: PreTrainedModel) -> dict[str, Any]:
    """What the original model is and where it runs, as plain data.

    Raises:
        BoschError: its attention cannot be switched.
    """
    return {
        "class": type(model).__name__,
        "units_per_layer": list(layout_of(attention_layers(model)).units_per_layer),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "attention": model.config._attn_implementation,
        "num_threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    main()
