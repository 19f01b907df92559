"""What `accelerate launch` starts: a tiny training into the directory that is given. A process of its own, it is no
test module."""

import os
import signal
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from tiny import LENGTH, make_examples, tiny_model, train_tiny

from bosch.errors import BoschError
from bosch.training.heldout import score_examples, summarize


def main(output: Path, micro_batch: int, kill_after_tokens: int) -> None:
    model, examples = tiny_model(), make_examples()

    def evaluate(tokens: int) -> dict[str, float]:
        if kill_after_tokens and tokens >= kill_after_tokens:
            os.kill(os.getpid(), signal.SIGKILL)
        return summarize(score_examples(model, examples), examples)

    try:
        train_tiny(output, model, micro_batch=micro_batch, on_evaluation=evaluate, eval_every=LENGTH)
    except BoschError as error:
        sys.exit(f"bosch: {error}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        # accelerate shards on GPUs only; all that it does then works on CPUs as well.
        PartialState(cpu=True)
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
