"""Two Ray workers, one of which is killed, against one evaluator in this process."""

import contextlib
import functools
import os
import signal

import pytest

from bosch.calibration import make_examples
from bosch.cli import main
from bosch.common.files import read_json
from bosch.decoder import Decoder
from bosch.models import load_model
from bosch.scoring.evaluator import Evaluator
from bosch.selectors import random_mask
from tiny_checkpoint import TINY


@pytest.mark.slow
def test_two_workers_have_the_scores_of_none_and_a_killed_one_changes_nothing():
    ray = pytest.importorskip("ray")
    from bosch.scoring.distributed import DistributedEvaluator, Workers

    load = functools.partial(load_model, str(TINY), dtype="float32", device="cpu")
    model, tokenizer = load()
    tasks = ["niah_single_1", "niah_single_2"]
    examples = make_examples(tokenizer, tasks=tasks, lengths=[128, 192], num_examples=8, seed=0)
    options = {"examples": examples, "window": 8, "batch_tokens": 256}
    decoder = Decoder(model)
    alone = Evaluator(decoder, **options)
    with contextlib.closing(Workers("local", lambda: load()[0], {"these": options}, num_workers=2)) as workers:
        together = DistributedEvaluator(decoder, name="these", workers=workers, **options)
        assert together.batch_tokens == 256
        for seed in range(6):
            mask = random_mask(alone.full, 0.5, seed)
            floor = alone.score(alone.full).nll * (1 + seed)
            for evaluator in (alone, together):
                evaluator.rebase(random_mask(alone.full, 0.25, seed // 2))
            if seed == 3:
                os.kill(ray.get(workers.actors[1].__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
            found, expected = (
                evaluator.score_while(mask, lambda score, floor=floor: score.nll <= floor)
                for evaluator in (together, alone)
            )
            assert found[1] == expected[1]
            assert found[0].hits == expected[0].hits
            assert found[0].nlls == pytest.approx(expected[0].nlls, abs=1e-5)
            assert together.score(mask).nlls == pytest.approx(alone.score(mask).nlls, abs=1e-5)
        masks = [random_mask(alone.full, 0.5, seed) for seed in range(3)]  # before the kill: no work was done twice
        assert together.cost(masks).evaluations == 3


def test_workers_without_ray_are_a_mistake(tmp_path, capsys):
    arguments = f"search --model {TINY} --window 8 --ratio 0.5 --workers 2 --output {tmp_path / 'run'}".split()
    assert main(arguments) == 2
    assert "2 workers were asked for without --ray" in capsys.readouterr().err


def test_a_missing_ray_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    options = "--window 8 --ratio 0.5 --lengths 128 --examples 2 --heldout 2 --dtype float32 --ray local"
    assert main(["search", "--model", str(TINY), *options.split(), "--output", str(tmp_path / "run")]) == 2
    assert "pip install 'bosch-swa[ray]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_on_two_workers_finds_the_mask_of_none(tmp_path):
    pytest.importorskip("ray")
    options = "--window 8 --ratio 0.5 --lengths 144,192 --examples 12 --heldout 4 --dtype float32"
    masks = []
    for flags in ([], ["--ray", "local", "--workers", "2"]):
        output = tmp_path / f"run{len(flags)}"
        assert main(["search", "--model", str(TINY), *options.split(), "--output", str(output), *flags]) == 0
        masks.append(read_json(output / "mask.json")["full"])
    assert masks[0] == masks[1]
