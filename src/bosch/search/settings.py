"""What one search is asked to do."""

import dataclasses

from bosch.experiment.settings import ExperimentSettings, option
from bosch.heads import quota
from bosch.registry import lookup


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(ExperimentSettings):
    """All that determines a search's result. Each field's help is in its metadata.

    Raises:
        BoschError: a value out of range; what needs the model or the tokenizer to be judged is judged later.
    """

    ratio: float = option("share of the KV groups that become sliding, from 0 to 1")
    method: str = option(
        "how heads are chosen: progressive, bosch (the paper's), or any of `bosch methods`", "progressive"
    )

    def __post_init__(self) -> None:
        quota(self.ratio, 1)
        super().__post_init__()
        from bosch.selectors import SELECTORS  # imports torch, which `bosch search --help` need not wait for

        lookup("method", self.method, SELECTORS)
