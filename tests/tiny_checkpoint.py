"""Where the tiny trained model lies."""

from pathlib import Path

TINY = Path(__file__).parent / "models" / "tiny"
