"""LongBench (Bai et al., 2308.14508), version 1: its tasks, and its data from local files."""

from bosch.evaluation.longbench.documents import Document, read_documents
from bosch.evaluation.longbench.tasks import CATEGORIES, TASKS, Task

__all__ = ["CATEGORIES", "TASKS", "Document", "Task", "read_documents"]
