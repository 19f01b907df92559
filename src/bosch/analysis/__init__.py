"""What masks have in common, what they have not, and what that says: the head analyses of the paper (4.2, 4.3, C.1)."""

from bosch.analysis.locality import LocalityChoice
from bosch.analysis.overlap import chance_distance, distance_matrix, jaccard_distance
from bosch.analysis.replacement import Replacement, replace_randomly, score_replacements
from bosch.analysis.turnover import Turnover

__all__ = [
    "LocalityChoice",
    "Replacement",
    "Turnover",
    "chance_distance",
    "distance_matrix",
    "jaccard_distance",
    "replace_randomly",
    "score_replacements",
]
