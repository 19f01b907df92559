"""What searches and comparisons share: settings, a directory, a model and its two example sets."""

from bosch.experiment.directory import ExperimentDirectory, make_directory, open_directory
from bosch.experiment.settings import ExperimentSettings

__all__ = ["ExperimentDirectory", "ExperimentSettings", "make_directory", "open_directory"]
