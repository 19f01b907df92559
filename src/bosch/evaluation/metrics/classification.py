"""Whether an answer names its class: LongBench's score of trec and lsht."""

from collections.abc import Sequence

from bosch.errors import BoschError


def classification(answer: str, references: Sequence[str], classes: Sequence[str]) -> float:
    """1 / n where the answer names the right class among n, else 0; case counts.

    A class is named where the answer holds its name anywhere. A class whose name lies within the right one's is not
    counted as named, except right after another such class in the order of the classes: the published scorer drops
    them from the list that it is walking along, and so steps over the next.

    Args:
        answer: the text that a model generated.
        references: names of right classes.
        classes: names of all classes, in the order of the data.

    Raises:
        BoschError: there are no classes.
    """
    if not classes:
        raise BoschError("a classification needs the names of all classes, got none")
    named = [name for name in classes if name in answer]
    return max(_share(reference, named) for reference in references)


def _share(reference: str, named: list[str]) -> float:
    counted = []
    steps_over = False
    for name in named:
        is_within = name != reference and name in reference
        if steps_over or not is_within:
            counted.append(name)
        steps_over = is_within and not steps_over
    return 1 / len(counted) if reference in counted else 0.0
