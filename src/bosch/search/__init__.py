"""The main job: from a model's name to a mask, its scores and a report."""

from bosch.search.directory import RunDirectory
from bosch.search.run import search
from bosch.search.settings import SearchSettings

__all__ = ["RunDirectory", "SearchSettings", "search"]
