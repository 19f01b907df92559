"""A run, told to people: one page and three pictures."""

from bosch.search.report.run_report import write_report

__all__ = ["write_report"]
