"""Tokens per second of training a hybrid beside training the full model.

    python benchmarks/training.py [--model smollm2-135m] [--tokens 4096] [--window 256] [--ratios 0.5,0.75,1.0]

A step is the loss of one sequence of random tokens and its gradients; the optimizer is left out, as it is the same for
both and is shared by all sequences of a batch. The full model runs with transformers' own "sdpa" attention, the hybrids
with the kernels of training, their sliding heads spread evenly over the layers. All are timed in turn within each
repeat, so that a busy machine slows them alike; the speed-up is the median of the repeats' own ratios.

The bound is the operation count's: multiplications of the projections, of the output head and of attention's visible
pairs of query and key, full model over hybrid. The backward pass takes twice those of the forward pass in both. The
last column is the share of the bound's speed-up that is there.
"""

import argparse
import contextlib
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bosch.decoder import Decoder
from bosch.deploy.layers import attention_layers
from bosch.heads import HeadMask
from bosch.models import load_model
from bosch.training.loss import language_modeling_loss
from deploy import interleaved, spread_mask, timed, visible_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--ratios", default="0.5,0.75,1.0")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--bfloat16", action="store_true", help="mixed precision; weights are float32 all the same")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load_model(options.model, dtype="float32", device=options.device)[0]
    decoder = Decoder(model)
    if options.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    ratios = [float(ratio) for ratio in options.ratios.split(",")]
    masks = [None, *(spread_mask(decoder.layout, ratio, options.window) for ratio in ratios)]
    ids = torch.randint(model.config.vocab_size, (1, options.tokens), device=model.device)
    times = interleaved([timed(step(decoder, mask, ids, options.bfloat16)) for mask in masks], options.repeats)
    work = [operations(decoder, mask, options.tokens) for mask in masks]
    precision = "bfloat16" if options.bfloat16 else "float32"
    place = torch.cuda.get_device_name() if model.device.type == "cuda" else f"{options.threads} thread(s)"
    print(f"torch {torch.__version__}, {options.model}, T={options.tokens}, W={options.window}, {precision}, {place}\n")
    print("| ratio | s a step | tokens/s | beside full | bound | share of the bound |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, own, operations_left in zip(["full", *ratios], times, work, strict=True):
        seconds, bound = statistics.median(own), work[0] / operations_left
        faster = statistics.median(full / one for full, one in zip(times[0], own, strict=True))
        share = "" if bound == 1 else f"{(faster - 1) / (bound - 1):.2f}"
        print(f"| {name} | {seconds:.2f} | {options.tokens / seconds:.0f} | {faster:.2f}x | {bound:.2f}x | {share} |")


def step(decoder: Decoder, mask: HeadMask | None, ids: Tensor, bfloat16: bool) -> Callable[[], None]:
    """Loss and gradients of one sequence; of the full model with its own attention, if there is no mask."""

    def run() -> None:
        hybrid = contextlib.nullcontext() if mask is None else decoder.hybrid(mask)
        with hybrid, torch.autocast(ids.device.type, torch.bfloat16, enabled=bfloat16):
            language_modeling_loss(decoder.model.train(), {"input_ids": ids, "labels": ids}).backward()
        decoder.model.zero_grad()
        if ids.is_cuda:
            torch.cuda.synchronize()

    return run


def operations(decoder: Decoder, mask: HeadMask | None, num_tokens: int) -> float:
    """Multiplications of one forward pass."""
    model: PreTrainedModel = decoder.model
    linear = sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Linear)) * num_tokens
    attention = 0.0
    for index, layer in enumerate(attention_layers(model)):
        heads = layer.num_heads / layer.num_groups * (layer.key_dim + layer.value_dim)
        row = mask.full[index] if mask is not None else ()
        for group in range(layer.num_groups):
            window = mask.window if mask is not None and row and not row[group] else layer.native_window
            attention += heads * visible_pairs(num_tokens, window)
    return linear + attention


if __name__ == "__main__":
    main()
