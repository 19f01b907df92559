"""Attention in which every KV group is full or sliding: kernels, their choice, and the door to transformers."""
