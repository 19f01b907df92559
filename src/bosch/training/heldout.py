"""Held-out needles, scored while a model is trained."""

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import PreTrainedModel

from bosch.calibration import Example, ExampleSet
from bosch.scoring.batches import score_tokens
from bosch.scoring.objective import Score


@torch.no_grad()
def score_examples(model: PreTrainedModel, examples: ExampleSet) -> Score:
    """How well a model predicts the answers under teacher forcing (paper 3.3).

    All processes call it, and each has the whole score; they share the examples, and call the model equally often, as
    one that is sharded needs all of them for each call.

    Args:
        model: in evaluation mode.
        examples: at least one.
    """
    state, count = PartialState(), len(examples)
    rounds = -(-count // state.num_processes)
    mine = [(turn * state.num_processes + state.process_index) % count for turn in range(rounds)]
    scored = gather_object([(index, *_score(model, examples[index])) for index in mine])
    _, hits, nlls = zip(*sorted(set(scored)), strict=True)
    return Score(hits, nlls)


def summarize(score: Score, examples: ExampleSet) -> dict[str, float]:
    """Accuracy and answer NLL (nats a token) of all examples, and the accuracy of each task and length.

    Raises:
        BoschError: the NLL is not finite.
    """
    score.check_finite("held-out needles")
    return {"accuracy": score.accuracy, "nll": score.nll, **examples.accuracy_by_task(score.hits)}


def _score(model: PreTrainedModel, example: Example) -> tuple[bool, float]:
    """Whether every answer token is the most likely one, and their mean NLL."""
    ids = torch.tensor([example.input_ids], device=model.device)
    answer = ids[0, example.answer_start :]
    # Without the last token, the last positions are those that predict the answer.
    output = model(input_ids=ids[:, :-1], use_cache=False, logits_to_keep=len(answer))
    hits, nlls = score_tokens(output.logits[0, -len(answer) :], answer)
    return bool(hits.all()), float(nlls.mean())
