"""What can be said of a model and its sequences before a training begins."""

import torch
from transformers import PreTrainedModel

from bosch.decoder import REPLAY_TOLERANCE
from bosch.errors import BoschError
from bosch.models.loading import check_tokens
from bosch.models.positions import num_positions
from bosch.training.packing import PackedSequences


def check_sequences(model: PreTrainedModel, sequences: PackedSequences) -> None:
    """Refuse sequences that the model was not made for.

    Raises:
        BoschError: they are longer than it takes, or hold ids that it has no embedding for.
    """
    longest = num_positions(model.config)
    if longest is not None and sequences.length > longest:
        raise BoschError(f"sequences of {sequences.length} tokens are too long for the model, which takes {longest}")
    check_tokens(model, sequences.largest_id)


@torch.no_grad()
def check_documents_stay_apart(model: PreTrainedModel) -> None:
    """Try whether documents of 5 and 7 tokens in one sequence have the logits that each has alone. In some models they
    see each other, and in training nothing shows it: the loss falls all the same.

    Raises:
        BoschError: they do not.
    """
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    tokens = torch.randint(vocabulary, (1, 12), generator=generator).to(model.device)
    position_ids = torch.tensor([[*range(5), *range(7)]], device=model.device)
    packed = model(input_ids=tokens, position_ids=position_ids, use_cache=False).logits[:, 5:].double()
    alone = model(input_ids=tokens[:, 5:], use_cache=False).logits.double()
    error = float((packed - alone).abs().max() / alone.abs().max())
    if not error <= REPLAY_TOLERANCE[model.dtype]:
        raise BoschError(
            f"{type(model).__name__} does not keep the documents of a packed sequence apart (the logits of the second "
            f"move by {error:.1e}, relative); expected to train it without documents_apart"
        )
