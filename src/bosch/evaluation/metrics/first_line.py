"""What counts of an answer to a few-shot task: a model that has learnt the form goes on with an example of its own."""


def first_line(answer: str) -> str:
    """The first line that is not empty; a line of spaces is not empty."""
    return answer.lstrip("\n").partition("\n")[0]
