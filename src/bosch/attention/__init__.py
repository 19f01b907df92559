"""Attention in which every KV group of a layer is full or sliding: kernels, their choice, and the door to transformers."""
