"""The published scores of LongBench (Bai et al., 2308.14508) and GSM8K, each a function of a text and its references.

All take the text that a model generated, as it is, and give a number from 0 to 1; of several references, the one that
gives most counts. The values are those of the benchmarks' own scorers, their oddities included, so that they compare
with published ones; each docstring says where another scorer gives another value.
"""

from bosch.evaluation.metrics.classification import classification
from bosch.evaluation.metrics.code_similarity import code_similarity
from bosch.evaluation.metrics.final_number import flexible_number, strict_number
from bosch.evaluation.metrics.first_line import first_line
from bosch.evaluation.metrics.numbers import count, retrieval, retrieval_zh
from bosch.evaluation.metrics.rouge_l import rouge_l, rouge_l_zh
from bosch.evaluation.metrics.token_f1 import token_f1, token_f1_zh

__all__ = [
    "classification",
    "code_similarity",
    "count",
    "first_line",
    "flexible_number",
    "retrieval",
    "retrieval_zh",
    "rouge_l",
    "rouge_l_zh",
    "strict_number",
    "token_f1",
    "token_f1_zh",
]
