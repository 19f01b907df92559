"""What an evaluation is asked to do. The command line's options are made from these fields."""

import dataclasses

from bosch.calibration.tasks import TASKS as NEEDLE_TASKS
from bosch.common.lookup import lookup
from bosch.common.options import DEVICE_HELP, DTYPE_HELP, TRUST_HELP, YARN_HELP, check_integer, check_yarn, option
from bosch.errors import BoschError
from bosch.evaluation import gsm8k
from bosch.evaluation.longbench import TASKS as LONGBENCH_TASKS

PERPLEXITY, OWN = "perplexity", "own"

WHAT, EXAMPLES, HARNESS, WHERE = "what to evaluate", "on what", "through lm-eval", "where and with what"
"""Groups of the options of `--help`."""

GROUPS: dict[str, tuple[str, ...]] = {
    "niah": tuple(NEEDLE_TASKS),
    "longbench": tuple(LONGBENCH_TASKS),
    gsm8k.NAME: (gsm8k.NAME,),
    PERPLEXITY: (PERPLEXITY,),
    OWN: (OWN,),
}
"""Names of tasks together, as the paper uses them (3.5, B.6), and the tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """All that determines an evaluation's result. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range, an unknown task, or a task without its data; what needs the model or the
            tokenizer to be judged is judged later.
    """

    targets: tuple[str, ...]
    tasks: tuple[str, ...] = option(
        "niah, longbench, gsm8k, perplexity, own (with --data), single tasks of them, or with --harness any of lm-eval",
        ("niah",),
        group=WHAT,
    )
    mask: tuple[str, ...] = option(
        "masks to put on the one TARGET, beside which they are evaluated: files, or directories of searches",
        (),
        group=WHAT,
        metavar="FILE|DIR,...",
    )
    windows: tuple[int, ...] = option("evaluate each hybrid at these windows, not at its own", (), group=WHAT)
    lengths: tuple[int, ...] = option(
        "tokens of the examples of niah and of the texts of perplexity", (4096, 8192, 16384, 32768), group=EXAMPLES
    )
    examples: int = option(
        "examples of each needle task at each length, texts of perplexity at each length, and own examples",
        20,
        group=EXAMPLES,
    )
    generate: bool = option("let the model also generate the needles' values, as RULER does", False, group=EXAMPLES)
    new_tokens: int = option("tokens that are generated for a needle at most", 128, group=EXAMPLES)
    haystack: str | None = option(
        "a UTF-8 text file to hide needles in; by default the text that is shipped",
        None,
        group=EXAMPLES,
        metavar="FILE",
    )
    chat: bool = option("ask through the tokenizer's chat template", False, group=EXAMPLES)
    data: str | None = option(
        "your own examples for the task own: a JSONL file of prompts and answers, or a text whose later tokens are to "
        "be predicted",
        None,
        group=EXAMPLES,
        metavar="FILE",
    )
    benchmarks: str | None = option(
        "the directory with the JSONL files of LongBench and GSM8K", None, group=EXAMPLES, metavar="DIR"
    )
    text: str | None = option("the UTF-8 text file for perplexity", None, group=EXAMPLES, metavar="FILE")
    limit: int | None = option(
        "only so many first examples of LongBench, GSM8K and lm-eval: no results then", None, group=EXAMPLES
    )
    seed: int = option("of the needles", 0, group=EXAMPLES)
    harness: bool = option("run the tasks through lm-eval, which fetches their data from the hub", False, group=HARNESS)
    include: str | None = option(
        "a directory of task files of one's own for lm-eval", None, group=HARNESS, metavar="DIR"
    )
    batch_tokens: int = option("tokens that enter the model at a time, over all rows of a batch", 8192, group=WHERE)
    yarn: float | None = option(f"{YARN_HELP}; by default as in the search or the checkpoint", None, group=WHERE)
    dtype: str = option(DTYPE_HELP, "auto", group=WHERE)
    device: str = option(DEVICE_HELP, "auto", group=WHERE)
    trust_remote_code: bool = option(TRUST_HELP, False, group=WHERE)

    def __post_init__(self) -> None:
        if not self.targets or not self.tasks or not self.lengths:
            raise BoschError("at least one target, one task and one length are needed")
        if self.mask and len(self.targets) > 1:
            raise BoschError(f"a mask is put on one model, got {len(self.targets)} targets: {', '.join(self.targets)}")
        for name, least in (("examples", 1), ("new_tokens", 1), ("batch_tokens", 1), ("seed", 0)):
            check_integer(name, getattr(self, name), least)
        for name, values in (("length", self.lengths), ("window", self.windows)):
            for value in values:
                check_integer(name, value, 1)
        check_yarn(self.yarn)
        if self.limit is not None:
            check_integer("limit", self.limit, 1)
        if self.include is not None and not self.harness:
            raise BoschError("task files are lm-eval's: expected --harness with --include")
        if not self.harness:
            self._check_own_tasks()
        if self.text is None and PERPLEXITY in self.tasks:
            raise BoschError("perplexity is measured over a text of yours; expected a UTF-8 file as --text")
        if self.data is None and OWN in self.tasks:
            raise BoschError("the task own is about examples of yours; expected their file as --data")

    def _check_own_tasks(self) -> None:
        known = {task: group for group, tasks in GROUPS.items() for task in tasks} | {name: name for name in GROUPS}
        groups = {lookup("task", name, known) for name in self.tasks}
        if self.benchmarks is None and (lacking := sorted(groups & {"longbench", gsm8k.NAME})):
            raise BoschError(
                f"{' and '.join(lacking)} need the published JSONL files; expected their directory as --benchmarks, or "
                "--harness to fetch them from the hub"
            )

    @property
    def chosen_tasks(self) -> tuple[str, ...]:
        """The single tasks, each once, in the order in which they were given."""
        return tuple(dict.fromkeys(task for name in self.tasks for task in GROUPS.get(name, (name,))))
