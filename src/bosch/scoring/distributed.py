"""The evaluator spread over a Ray cluster: batches of examples are divided among workers, each with the model.

The unit of work is the batch that the evaluator would run itself, so the scores are those of one machine, and so is the
mask that a search finds. Each batch stays with one worker, which keeps its hidden states. A worker that is lost is
started again by Ray, and its batch is run again.
"""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bosch.common.lookup import import_extra
from bosch.decoder import Decoder
from bosch.heads import HeadMask
from bosch.scoring.evaluator import Evaluator, Result

if TYPE_CHECKING:
    from transformers import PreTrainedModel


LOCAL = "local"
"""The address that stands for a cluster of this machine alone."""

Options = Mapping[str, Any]
"""Arguments of an `Evaluator`, its decoder and what it tells others left out."""


class Workers:
    """Actors of a Ray cluster.

    Args:
        address: of the cluster, as `ray.init` takes it; or `local`.
        load: gives the model; called once in each worker.
        evaluators: arguments of the evaluators that every worker has, by name.
        num_workers: how many; None for one a GPU, or one in all where there is none.

    Raises:
        BoschError: ray is not installed.
    """

    def __init__(
        self,
        address: str,
        load: Callable[[], "PreTrainedModel"],
        evaluators: Mapping[str, Options],
        num_workers: int | None = None,
    ) -> None:
        self._ray = import_extra("ray", "--ray", "ray")
        self._ray.init(
            address=None if address == LOCAL else address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
        cluster = self._ray.cluster_resources()
        num_gpus = int(cluster.get("GPU", 0))
        count = num_workers or num_gpus or 1
        num_cpus = max(1, int(cluster.get("CPU", 1)) // count)
        actor = self._ray.remote(Worker).options(
            num_cpus=num_cpus, num_gpus=1 if num_gpus else 0, max_restarts=-1, max_task_retries=-1
        )
        self.actors = [actor.remote(load, dict(evaluators), num_cpus) for _ in range(count)]

    def submit(self, name: str, number: int, mask: HeadMask, base: HeadMask) -> Any:
        """Have a batch run by its worker; the answer is to be had from `result`."""
        return self.worker_of(number).run.remote(name, number, mask, base)

    def worker_of(self, number: int) -> Any:
        """The actor that runs a batch."""
        return self.actors[number % len(self.actors)]

    def result(self, submitted: Any) -> tuple[list[Result], int]:
        """What a worker found, and the layer-tokens that it took; waits for it."""
        return self._ray.get(submitted)

    def close(self) -> None:
        """Leave the cluster; the workers end."""
        self._ray.shutdown()


class Worker:
    """One process with the model, and an evaluator of each example set.

    Args:
        load: gives the model.
        evaluators: arguments of the evaluators, by name.
        num_threads: of torch.
    """

    def __init__(
        self, load: Callable[[], "PreTrainedModel"], evaluators: Mapping[str, Options], num_threads: int
    ) -> None:
        import torch

        torch.set_num_threads(num_threads)
        decoder = Decoder(load())
        self.evaluators = {name: Evaluator(decoder, **options) for name, options in evaluators.items()}

    def run(self, name: str, number: int, mask: HeadMask, base: HeadMask) -> tuple[list[Result], int]:
        """Run one batch under a mask, from the kept states of the base."""
        return self.evaluators[name].run_batch(number, mask, base)


class DistributedEvaluator(Evaluator):
    """An evaluator whose batches are run by workers.

    Args:
        name: of this evaluator among those that the workers have.
        workers: have an evaluator with the same options.
        others: as for `Evaluator`.
    """

    def __init__(self, decoder: Decoder, *, name: str, workers: Workers, **others: Any) -> None:
        super().__init__(decoder, **others)
        self._name, self._workers = name, workers

    def _run_in_turn(self, numbers: Sequence[int], mask: HeadMask) -> Iterator[list[Result]]:
        """The batches' results; each worker has one batch ahead of what is asked for."""
        waiting: dict[Any, collections.deque[int]] = collections.defaultdict(collections.deque)
        for number in numbers:
            waiting[self._workers.worker_of(number)].append(number)
        submitted: dict[int, Any] = {}

        def submit_next(worker: Any) -> None:
            if waiting[worker]:
                number = waiting[worker].popleft()
                submitted[number] = self._workers.submit(self._name, number, mask, self.base)

        for worker in list(waiting):
            submit_next(worker)
        for number in numbers:
            results, layer_tokens = self._workers.result(submitted.pop(number))
            submit_next(self._workers.worker_of(number))
            self._layer_tokens += layer_tokens
            yield results
