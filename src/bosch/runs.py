"""Masks and searches as a user names them: files, and directories; read as data, for they may come from others."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bosch.common.files import read_json
from bosch.common.output import OutputDirectory
from bosch.common.tables import mean_and_spread, text_table
from bosch.errors import BoschError
from bosch.heads import HeadMask

LONGEST_NAME = 80


@dataclasses.dataclass(frozen=True)
class ExperimentDirectory(OutputDirectory):
    """Where whatever scores masks on a model keeps everything it makes."""

    resources = frozenset({"memory_gib", "batch_tokens", "ray", "workers"})
    renamed = {"length": "lengths"}  # noqa: RUF012 - nobody writes to it

    @property
    def journal(self) -> Path:
        """Evaluations on the calibration set."""
        return self.path / "journal.jsonl"

    @property
    def heldout_journal(self) -> Path:
        """Evaluations on the held-out set."""
        return self.path / "heldout.jsonl"

    @property
    def unit_scores(self) -> Path:
        """A folder of the KV heads' scores, one file a method that has them."""
        return self.path / "unit_scores"

    @property
    def masks(self) -> Path:
        """A folder of masks beside the result."""
        return self.path / "masks"

    @property
    def has_results(self) -> bool:
        """Whether it got as far as its first evaluation, which the journal's header precedes: a first command with a
        mistake does not stand in the way of the right one."""
        return any(
            journal.is_file() and journal.read_bytes().count(b"\n") > 1
            for journal in (self.journal, self.heldout_journal)
        )


@dataclasses.dataclass(frozen=True)
class RunDirectory(ExperimentDirectory):
    """Where a search keeps everything it makes."""

    schema = "bosch.run/1"
    called = "search"
    results = (
        "report.md",
        "scores.json",
        "selection.json",
        "mask.json",
        "front.csv",
        *(f"{name}.{kind}" for name in ("mask", "sensitivity", "search", "front") for kind in ("png", "svg")),
        "heldout.jsonl",
        "journal.jsonl",
        "masks",
        "unit_scores",
    )

    @property
    def mask(self) -> Path:
        """The result."""
        return self.path / "mask.json"

    @property
    def selection(self) -> Path:
        """Every choice of the method."""
        return self.path / "selection.json"

    @property
    def scores(self) -> Path:
        """Calibration and held-out scores."""
        return self.path / "scores.json"

    @property
    def front(self) -> Path:
        """Score against the size of the cache, of every mask from the original to all sliding."""
        return self.path / "front.csv"

    @property
    def is_finished(self) -> bool:
        """Whether a search came to its end here."""
        return all(path.is_file() for path in (self.mask, self.selection, self.scores, self.report))


def is_run(path: Path) -> bool:
    """Whether a search works or worked in this directory."""
    return RunDirectory(path).settings.is_file()


@dataclasses.dataclass(frozen=True)
class MaskFile:
    """A mask that was read, and what its file says about where it came from.

    Args:
        path: as the user gave it.
        mask: what was read.
        provenance: what the file says of where it came from; decoration, on whose shape nothing depends.
    """

    path: Path
    mask: HeadMask
    provenance: Mapping[str, Any]

    @property
    def method(self) -> str | None:
        """The method that chose it; None where the file does not say."""
        return _name(self.provenance.get("method")) or _name(_object(self.provenance.get("settings")).get("method"))

    @property
    def model(self) -> str | None:
        """The model it was made for, a directory by its last part; None where the file does not say."""
        model = self.provenance.get("model")
        return _name(model.rstrip("/").rpartition("/")[2]) if isinstance(model, str) else None

    @property
    def model_hash(self) -> str | None:
        """Of the model's weights; None where the file does not say."""
        return _name(self.provenance.get("model_hash"))

    @property
    def stem(self) -> str:
        """Name of the search's directory, or of the file without its ending."""
        return self.path.resolve().name if self.path.is_dir() else self.path.stem


def load_mask(path: Path) -> MaskFile:
    """Read a mask file, or the mask of a search's directory, as data.

    Raises:
        BoschError: it cannot be read or is no mask; the path is named.
    """
    file = RunDirectory(path).mask if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise BoschError(f"{path} holds no {file.name}; expected a mask file or the directory of a finished search")
    data = read_json(file)
    try:
        mask = HeadMask.from_json(data)
        if not mask.layout.num_units:
            raise BoschError("the mask has no units; expected at least one")
    except BoschError as error:
        raise BoschError(f"{file}: {error}") from None
    return MaskFile(path, mask, _object(data.get("provenance")))


def load_masks(paths: Sequence[Path]) -> tuple[MaskFile, ...]:
    """Read masks of one layout.

    Raises:
        BoschError: one is refused by `load_mask`, or two are of different layouts; both are named.
    """
    files = tuple(load_mask(path) for path in paths)
    for file in files:
        if file.mask.layout != files[0].mask.layout:
            raise BoschError(
                f"masks of different models cannot be compared: {files[0].path} is for {files[0].mask.layout}, "
                f"{file.path} for {file.mask.layout}"
            )
    return files


def name_masks(files: Iterable[MaskFile]) -> dict[str, HeadMask]:
    """Masks by the shortest name that tells them apart: the method, else the stem, else the whole path.

    Raises:
        BoschError: the same path is given twice.
    """
    files = tuple(files)
    names = [file.method or file.stem for file in files]
    for longer in ([file.stem for file in files], [str(file.path) for file in files]):
        count = collections.Counter(names)
        names = [long if count[name] > 1 else name for name, long in zip(names, longer, strict=True)]
    for name, times in collections.Counter(names).items():
        if times > 1:
            raise BoschError(f"{name} is given {times} times; expected different masks")
    return {name: file.mask for name, file in zip(names, files, strict=True)}


def by_ratio(files: Iterable[MaskFile]) -> tuple[tuple[MaskFile, ...], ...]:
    """Masks of one layout, grouped by the number of units that slide, fewest first."""

    def size(file: MaskFile) -> int:
        return file.mask.num_localized

    return tuple(tuple(group) for _, group in itertools.groupby(sorted(files, key=size), key=size))


def model_name(files: Sequence[MaskFile]) -> str:
    """The model that all these masks were made for; its layout where they do not say one."""
    models = {file.model for file in files}
    return (models.pop() if len(models) == 1 else None) or str(files[0].mask.layout)


def read_scores(run: RunDirectory) -> tuple[Mapping[str, Any], ...]:
    """The rows of a search's `scores.json`; none where it has not come to them.

    Raises:
        BoschError: the file is not what a search writes.
    """
    if not run.scores.is_file():
        return ()
    rows = _object(read_json(run.scores)).get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "heldout" in row for row in rows[:1]):
        raise BoschError(f"{run.scores} does not hold the scores of a search; expected a list of rows")
    return tuple(rows)


def score_table(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The rows of `scores.json` as a Markdown table, random masks as their mean and spread (of the sample)."""
    shown = [row for row in rows if "heldout" in row]
    randoms = [row for row in shown if row["name"].startswith("random ")]
    lines = []
    for row in shown:
        if row not in randoms:
            lines.append(_score_line(row["name"], [row]))
        elif row is randoms[-1]:
            lines.append(_score_line(f"random KV heads (mean of {len(randoms)}, ± spread)", randoms))
    header = ["mask", "ratio", "held-out accuracy", "held-out NLL", "calibration accuracy", "calibration NLL"]
    return text_table(header, lines)


def _score_line(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [name, f"{rows[0]['ratio']:.3f}"]
    for split in ("heldout", "calibration"):
        for kind, digits in (("accuracy", 2), ("nll", 3)):
            cells.append(mean_and_spread([row[split][kind] for row in rows], digits))
    return cells


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(value: Any) -> str | None:
    """What can be shown on one line: a file from others may hold anything."""
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_NAME else None
