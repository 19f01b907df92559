"""The main job: from a model's name to a mask, its scores and a report. The search itself is `run.search`."""

from bosch.search.directory import RunDirectory
from bosch.search.settings import SearchSettings

__all__ = ["RunDirectory", "SearchSettings"]
