import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from bosch.heads import HeadLayout, HeadMask
from drawing import stop_drawing
from small_commands import measure_at_once
from small_search import SIZES, make_tokenizer
from tiny_checkpoint import TINY

# Times of small examples vary with the load of the machine; what is tested is the result.
hypothesis.settings.register_profile("bosch", deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.load_profile("bosch")
torch.set_num_threads(1)
stop_drawing()
# A shell that starts the tests in the background may have it ignored, which children inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def fresh_accelerator() -> Iterator[None]:
    """accelerate keeps the precision of a process's first training, which may be another test's."""
    yield
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def tiny_llama() -> LlamaForCausalLM:
    """2 layers, 4 query heads over 2 KV groups. Large random weights, so that a small fault shows in the logits."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.5,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word: w0, w1, ... w62, <unk>."""
    vocabulary = {"<unk>": 63, **{f"w{index}": index for index in range(63)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of 3 layers x 3 KV heads, which happens to predict the answers better with all of them full."""
    path = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(path)
    torch.manual_seed(1)
    Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **SIZES)).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def nothing_slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No benchmark measures, and no other process is asked; what is written stays as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bosch.bench.run.run_job", measure_at_once)
        patch.setattr("bosch.common.provenance._git_commit", lambda: None)
        patch.setenv("BOSCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> dict[str, str]:
    """What the commands read: masks, an exported hybrid whose tokenizer has an end of text, and a text."""
    from transformers import AutoTokenizer

    from bosch.cli import main

    folder = tmp_path_factory.mktemp("world")
    full = HeadMask.all_full(HeadLayout((4,) * 6), 8)
    for name, units in (("a", [(0, 0)]), ("b", [(0, 1), (1, 2)]), ("c", [(5, 3)])):
        full.localize(units).save(folder / f"{name}.json")
    shutil.copytree(TINY, folder / "tiny")
    tokenizer = AutoTokenizer.from_pretrained(folder / "tiny")
    tokenizer.eos_token = "<bos>"
    tokenizer.save_pretrained(folder / "tiny")
    export = ["export", "--model", str(folder / "tiny"), "--mask", str(folder / "b.json")]
    assert main([*export, "--output", str(folder / "export")]) == 0
    (folder / "text.txt").write_text("The grass is green. The sky is blue. " * 30)
    return {"masks": str(folder), "export": str(folder / "export"), "texts": str(folder / "text.txt")}
