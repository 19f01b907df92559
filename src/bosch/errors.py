"""The one kind of error that a user can mend."""


class BoschError(ValueError):
    """A mistake of the user's, in one sentence: what was wrong, the value seen, what would be right.

    The command line prints it without a traceback and exits with status 2.
    """
