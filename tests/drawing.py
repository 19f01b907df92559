"""Pictures take longer than nearly all else that is tested, so a file of one is a word, unless a test looks at it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

_savefig, _lay_out = Figure.savefig, Figure.draw_without_rendering


def write_a_word(figure: Figure, file, **_: object) -> None:
    if isinstance(file, str | Path):
        Path(file).write_bytes(b"drawn")
    else:
        file.write(b"drawn")


def stop_drawing() -> None:
    Figure.savefig, Figure.draw_without_rendering = write_a_word, lambda figure: None


@contextlib.contextmanager
def drawn() -> Iterator[None]:
    """Pictures are drawn while the block runs."""
    Figure.savefig, Figure.draw_without_rendering = _savefig, _lay_out
    try:
        yield
    finally:
        stop_drawing()
