"""The command line: `bosch`."""

from bosch.cli.app import main

__all__ = ["main"]
