"""The directory that a command keeps its results in: made, gone on with, refused or replaced, and never two at once.

What was there is touched only when a command says `begin`: by then its inputs were read, checked and loaded.
"""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock, Timeout

from bosch.common.files import read_json, write_json
from bosch.common.provenance import provenance
from bosch.errors import BoschError

LOCK = ".lock"
"""Held by whichever command works in a directory. The file stays: to remove it would let two in at once."""


@dataclasses.dataclass(frozen=True)
class OutputDirectory:
    """Where a command keeps everything it makes; each kind of command has a subclass.

    Class attributes:
        schema: of `run.json`, which tells the kinds apart.
        called: what makes it, in messages.
        results: names, or patterns of names, of all that it makes beside `run.json`, in the order of their removal.
        resources: settings that change what it costs and nothing of its result: it may be resumed with others.
        renamed: settings that earlier versions called otherwise, by that name.
    """

    schema: ClassVar[str]
    called: ClassVar[str]
    results: ClassVar[tuple[str, ...]]
    resources: ClassVar[frozenset[str]] = frozenset()
    renamed: ClassVar[Mapping[str, str]] = {}

    path: Path

    @property
    def settings(self) -> Path:
        """Settings and provenance, written first."""
        return self.path / "run.json"

    @property
    def report(self) -> Path:
        """The report to read first, written last."""
        return self.path / "report.md"

    @property
    def is_finished(self) -> bool:
        """Whether a command came to its end here."""
        return self.report.is_file()

    @property
    def has_results(self) -> bool:
        """Whether it holds anything that would be missed."""
        return any(True for _ in self.result_paths())

    def result_paths(self) -> Iterator[Path]:
        """The files and folders of results that are there."""
        return (path for pattern in self.results for path in sorted(self.path.glob(pattern)))

    def read_settings(self) -> dict[str, Any]:
        """Settings of the run that is there, under the names of today, as data.

        Raises:
            BoschError: there are none of this kind.
        """
        if not self.settings.is_file():
            raise BoschError(f"{self.path} is not empty and holds no {self.called}; choose another directory")
        found = read_json(self.settings)
        settings = found.get("settings") if isinstance(found, dict) and found.get("schema") == self.schema else None
        if not isinstance(settings, dict):
            raise BoschError(
                f"{self.settings} is not of a {self.called} (expected the schema {self.schema!r}); choose another "
                "directory"
            )
        # A name that was given to something else since is an old one only where the new one is missing.
        return {
            name if (today := self.renamed.get(name, name)) in settings else today: value
            for name, value in settings.items()
        }

    @contextlib.contextmanager
    def claimed(self, settings: Any, *, overwrite: bool = False) -> Iterator["Claim"]:
        """Hold the directory while the block runs; see `docs/files.md` for what becomes of which directory.

        Args:
            settings: a frozen dataclass or plain data, all that determines the result.
            overwrite: replace a run of other settings; anything that is no run of this kind is refused even so.

        Raises:
            BoschError: the directory holds another run or something else, another command works in it, or it cannot be
                written. Nothing was changed then.
        """
        if self.path.is_dir():
            self._judge(settings, overwrite)  # what is refused gets no lock either
        with self.held():
            yield self._judge(settings, overwrite)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep all other commands out of the directory while the block runs. It is made if it is not there, and
        disappears again if nothing has come of it.

        Raises:
            BoschError: another command works in it, it is a file, or it cannot be written.
        """
        if self.path.exists() and not self.path.is_dir():
            raise BoschError(f"{self.path} is a file; expected a directory for the results")
        made = not self.path.exists()
        make_directory(self.path)
        try:
            lock = FileLock(self.path / LOCK)
            lock.acquire(timeout=0)
        except Timeout:
            raise BoschError(f"{self.path} is in use by another running command; expected one at a time") from None
        except OSError as error:
            if made:
                with contextlib.suppress(OSError):
                    self.path.rmdir()
            raise BoschError(f"cannot write {self.path}: {error.strerror or error}") from None
        try:
            yield
        finally:
            lock.release()
            if made and all(path.name == LOCK for path in self.path.iterdir()):
                shutil.rmtree(self.path)

    def _judge(self, settings: Any, overwrite: bool) -> "Claim":
        """What may be done in the directory.

        Raises:
            BoschError: nothing.
        """
        data = json.loads(json.dumps(settings if isinstance(settings, Mapping) else dataclasses.asdict(settings)))
        if all(path.name == LOCK or path.name.startswith(".run.json.") for path in self.path.iterdir()):
            return Claim(self, data, is_new=True)
        difference = _difference(self.read_settings(), data, settings, self.resources)
        if difference and self.has_results and not overwrite:
            raise BoschError(
                f"{self.path} holds another {self.called} ({difference}); choose another directory or --overwrite"
            )
        return Claim(self, data, is_new=bool(difference))


@dataclasses.dataclass(frozen=True)
class RowsDirectory(OutputDirectory):
    """Where something that is measured row by row keeps everything."""

    @property
    def rows(self) -> Path:
        """Every row so far, with what it was measured on."""
        return self.path / "rows.json"

    @property
    def csv(self) -> Path:
        """The rows for a spreadsheet."""
        return self.path / "rows.csv"


@dataclasses.dataclass(frozen=True)
class AnalysisDirectory(OutputDirectory):
    """Where an analysis of results puts its table, its numbers and its pictures."""

    schema = "bosch.analysis/1"
    called = "analysis"
    results = tuple(
        f"{name}.{kind}"
        for name in ("overlap", "turnover", "units", "layers", "locality", "curves")
        for kind in ("json", "csv", "png", "svg")
    )


@dataclasses.dataclass
class Claim:
    """A directory that a command holds.

    Args:
        directory: the directory.
        settings: of the command, as plain data.
        is_new: whether the command begins anew, and what is there from another is to be replaced.
    """

    directory: OutputDirectory
    settings: Mapping[str, Any]
    is_new: bool

    def begin(self) -> None:
        """From here on there is something to put in the place of what was there.

        Raises:
            BoschError: `run.json` cannot be written.
        """
        if self.is_new:
            self.replace()
            self.is_new = False

    def replace(self) -> None:
        """Begin anew, whatever is there of this kind. Should this be stopped half-way, it is a run still, as the
        settings go last. Files of others stay."""
        directory = self.directory
        for path in directory.result_paths():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        write_json(
            directory.settings,
            {"schema": directory.schema, "settings": dict(self.settings), "provenance": provenance()},
        )


def make_directory(path: Path) -> None:
    """Make a directory and those above it; one that is there is fine.

    Raises:
        BoschError: it cannot be made; the path and the reason are named.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BoschError(f"cannot make the directory {path}: {error.strerror or error}") from None
    except ValueError as error:  # a name that no directory can have
        raise BoschError(f"cannot make the directory {str(path)!r}: {error}") from None


def _difference(found: Mapping[str, Any], data: Mapping[str, Any], settings: Any, resources: frozenset[str]) -> str:
    """The first setting that differs, in words; empty where none does. One that an earlier version did not have yet
    was what its default is."""
    fields = dataclasses.fields(settings) if dataclasses.is_dataclass(settings) else ()
    defaults = {field.name: field.default for field in fields}
    for name, value in data.items():
        before = found[name] if name in found else json.loads(json.dumps(defaults.get(name, value), default=str))
        if name not in resources and before != value:
            return f"its {name} is {before!r:.200}, now it is {value!r:.200}"
    return ""
