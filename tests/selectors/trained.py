"""The trained model that answers needles."""

from pathlib import Path

TINY = str(Path(__file__).parent.parent / "models" / "tiny")
