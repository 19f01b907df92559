"""Two processes over one model: refused in a sentence when it is loaded or searched; no few heads are taken for all."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from stock_models import some_mask
from transformers.distributed import DistributedConfig

from bosch.deploy.hybridize import hybridize
from families import make_model

WORKER = """
import sys
import torch
from transformers import AutoModelForCausalLM
import bosch.deploy.auto_classes
from bosch.decoder import Decoder
from bosch.deploy.hybridize import hybridize
from bosch.heads import HeadLayout, HeadMask

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
bosch.deploy.auto_classes.register_auto_classes()
try:
    AutoModelForCausalLM.from_pretrained(sys.argv[2], tp_plan="auto")
except ValueError as error:
    print(f"{rank} export: {error}", flush=True)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], tp_plan="auto")
assert model.model.layers[0].self_attn.k_proj.weight.to_local().shape[0] == 8, "it was not sharded"
for use in (Decoder, lambda model: hybridize(model, HeadMask.all_full(HeadLayout((2, 2, 2)), 4))):
    try:
        use(model)
    except ValueError as error:
        print(f"{rank} model: {type(error).__name__}: {error}", flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    model = make_model("llama")
    model.save_pretrained(tmp_path / "stock")
    hybridize(model, some_mask(model)).save_pretrained(tmp_path / "hybrid")
    return tmp_path / "stock", tmp_path / "hybrid"


@pytest.mark.slow
def test_two_processes_are_refused_by_the_export_the_search_and_the_conversion(saved, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
              "OMP_NUM_THREADS": "1"}  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), *map(str, saved)],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank, process in enumerate(processes):
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-2000:]
        assert f"{rank} export: a hybrid cannot be sharded by tensor parallelism" in output
        assert output.count(f"{rank} model: BoschError: this LlamaForCausalLM is sharded") == 2


@pytest.mark.parametrize(
    "options", [{"tp_plan": "auto"}, {"tp_size": 2}, {"distributed_config": DistributedConfig(tp_size=2)}], ids=str
)
def test_an_export_is_refused_before_anything_is_loaded(options, saved):
    kind = type(hybridize(make_model("llama"), some_mask(make_model("llama"))))
    with pytest.raises(ValueError, match="load it without tp_plan, tp_size and distributed_config"):
        kind.from_pretrained(saved[1], **options)
    assert isinstance(kind.from_pretrained(saved[1]).lm_head.weight, torch.Tensor)
