"""Whatever wraps a hybrid for training, its windows stay: a changed token moves the logits of exactly the tokens that
it reaches. What would change the attention, or is not supported, is refused."""

import socket
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import accelerate
import pytest
import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, DynamoBackend, ParallelismConfig
from tiny import train_tiny
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.training.log import read_log
from bosch.training.processes import check_distribution
from families import make_model

LAYERS, WINDOW, LENGTH = 3, 4, 24


@pytest.fixture
def one_process_group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


Forward = Callable[[Tensor], Tensor]


def training(model: nn.Module) -> Forward:
    model.train()
    return lambda ids: model(input_ids=ids, use_cache=False).logits


def gradient_checkpointing(model: nn.Module) -> Forward:
    model.activation_checkpointing_enable({"use_reentrant": False})
    return training(model)


def mixed_precision(model: nn.Module) -> Forward:
    return training(Accelerator(mixed_precision="bf16").prepare(model))


def data_parallel(model: nn.Module) -> Forward:
    return training(nn.parallel.DistributedDataParallel(model))


def fully_sharded(model: nn.Module) -> Forward:
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    return training(model)


def offloaded(model: nn.Module) -> Forward:
    return training(accelerate.cpu_offload(model, execution_device=torch.device("cpu")))


def with_adapters(model: nn.Module) -> Forward:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules="all-linear", init_lora_weights=False)
    return training(peft.get_peft_model(model, config))


def reach(forward: Forward, position: int) -> list[int]:
    """Positions whose logits change with the token at one of them."""
    ids = torch.randint(1, 97, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    other = ids.clone()
    other[0, position] = ids[0, position] % 96 + 1
    return (forward(ids) - forward(other)).detach().abs().amax(-1)[0].nonzero().flatten().tolist()


@pytest.mark.usefixtures("one_process_group")
@pytest.mark.parametrize(
    "wrap",
    [training, gradient_checkpointing, mixed_precision, data_parallel, fully_sharded, offloaded, with_adapters],
)
def test_a_token_reaches_as_far_as_the_windows_of_all_layers(wrap: Callable[[nn.Module], Forward]) -> None:
    model = make_model("llama", initializer_range=0.5)
    decoder = Decoder(model)
    sliding = HeadMask.all_sliding(decoder.layout, WINDOW)
    with decoder.hybrid(sliding):
        assert reach(wrap(model), 5) == list(range(5, 5 + LAYERS * (WINDOW - 1) + 1)) == list(range(5, 15))


def launch(**changes: object) -> Accelerator:
    """What `check_distribution` looks at."""
    values = {
        "distributed_type": DistributedType.NO,
        "num_processes": 1,
        "parallelism_config": None,
        "is_fsdp2": False,
        "dynamo": DynamoBackend.NO,
    } | changes
    plugin = types.SimpleNamespace(backend=values.pop("dynamo"))
    return types.SimpleNamespace(**values, state=types.SimpleNamespace(dynamo_plugin=plugin))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distributed_type": DistributedType.DEEPSPEED}, "DEEPSPEED"),
        ({"distributed_type": DistributedType.MEGATRON_LM}, "MEGATRON_LM"),
        ({"distributed_type": DistributedType.FSDP}, "FSDP version 1"),
        ({"dynamo": DynamoBackend.INDUCTOR}, r"torch\.compile"),
        ({"parallelism_config": ParallelismConfig(cp_size=2)}, "cp_size of 2"),
        ({"parallelism_config": ParallelismConfig(tp_size=4)}, "tp_size of 4"),
    ],
)
def test_launches_that_are_not_supported_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(
        BoschError, match=f"the launch asks for {message}, which is not supported; expected one process"
    ):
        check_distribution(launch(**changes))


def test_launches_that_are_supported() -> None:
    check_distribution(launch())
    check_distribution(launch(parallelism_config=ParallelismConfig(dp_shard_size=2)))
    check_distribution(launch(distributed_type=DistributedType.MULTI_GPU))
    check_distribution(launch(distributed_type=DistributedType.FSDP, is_fsdp2=True))


def test_processes_that_do_not_see_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without GPUs, accelerate lets each be the only one, unless it is told to use CPUs."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BoschError, match=r"started 2 processes, but accelerate sees 1; .*ACCELERATE_USE_CPU=true"):
        check_distribution(launch())


def test_sharding_that_accelerate_would_leave_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(BoschError, match="asks for FSDP without GPUs"):
        check_distribution(launch(distributed_type=DistributedType.MULTI_CPU))


@pytest.fixture
def sharding_launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One process of an FSDP2 launch. accelerate shards on GPUs only; all that it does then works on CPUs as well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launch = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    fsdp = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
    for name, value in {**launch, **fsdp, "FSDP_RESHARD_AFTER_FORWARD": "true", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_a_sharded_training_is_the_plain_one_and_leaves_an_ordinary_export(
    tmp_path: Path, sharding_launch: None
) -> None:
    sharded = train_tiny(tmp_path / "sharded", tokens=288)
    torch.distributed.destroy_process_group()
    AcceleratorState._reset_state(reset_partial_state=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ACCELERATE_USE_FSDP", "RANK", "LOCAL_RANK", "WORLD_SIZE"):
            patch.delenv(name)
        plain = train_tiny(tmp_path / "plain", tokens=288)
    curves = [[line["loss"] for line in read_log(tmp_path / name / "log.jsonl")] for name in ("sharded", "plain")]
    assert curves[0] == pytest.approx(curves[1], abs=1e-6)
    models = [AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64) for path in (sharded, plain)]
    for name, weight in models[1].state_dict().items():
        torch.testing.assert_close(models[0].state_dict()[name], weight, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gemma2", "gpt_oss"])
def test_the_layers_that_a_model_names_for_sharding_are_there_in_its_hybrid(family: str) -> None:
    model = make_model(family)
    decoder = Decoder(model)
    with decoder.hybrid(HeadMask.all_sliding(decoder.layout, WINDOW)):
        found = {type(module).__name__ for module in model.modules()}
    assert model._no_split_modules
    assert set(model._no_split_modules) & found == {type(layer).__name__ for layer in decoder.layers}
