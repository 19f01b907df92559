"""Hybrids served by vLLM, with a KV cache that is small head by head.

vLLM finds `plugin.register` by its entry point and then loads what `bosch export` wrote as it is. This package imports
nothing of the search, and no torch before vLLM does.
"""

from bosch.serving.server import serve

__all__ = ["serve"]
