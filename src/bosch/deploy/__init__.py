"""A mask made real: reordered weights, a cache that is small, and checkpoints that load everywhere."""
