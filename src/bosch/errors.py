"""The one kind of error that a user can mend."""

import contextlib
from collections.abc import Iterator


class BoschError(ValueError):
    """A mistake of the user's, in one sentence: what was wrong, the value seen, what would be right.

    The command line prints it without a traceback and exits with status 2.
    """


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """Say in a sentence what the operating system refuses to do with a path: a name that is too long, a directory that
    may not be entered. Also a decorator.

    Raises:
        BoschError: with the path and the reason. Errors that name no path pass through.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise BoschError(f"{error.filename}: {error.strerror or error}") from error
