"""FlexAttention's mask and score functions, uncompiled on the CPU, against the dense kernel."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from bosch.attention import dense, flex
from bosch.attention.kernels import AttentionCall

LEFT_PADDED = torch.arange(23) >= torch.tensor([[0], [9]])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    "call",
    [
        AttentionCall(0.3),
        AttentionCall(0.3, 4),
        AttentionCall(0.3, 4, 2, padding=LEFT_PADDED),
        AttentionCall(0.3, 4, 2, positions=torch.tensor([[3, 5, 6, 7, 9, 11, 21], [0, 1, 2, 3, 4, 5, 6]])),
        AttentionCall(0.3, 4, softcap=1.7),
        AttentionCall(0.3, 4, 2, sink_logits=torch.linspace(-2, 2, 6).view(3, 2)),
    ],
)
def test_flex_follows_the_definition(call: AttentionCall) -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 3, 2, 7, 16, generator=generator)
    key, value = torch.randn(2, 2, 3, 23, 16, generator=generator)
    mask = create_block_mask(flex.mask_function(query, key, call), 2, None, 7, 23, device="cpu")
    output = flex.attend_masked(flex_attention, query, key, value, call, mask)
    expected = dense.attend(query, key, value, call)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


def test_it_is_never_chosen_on_the_cpu() -> None:
    assert not flex.supports(torch.zeros(1, 1, 1, 1, 16), torch.zeros(1, 1, 1, 16), AttentionCall(0.3, softcap=1.7))
