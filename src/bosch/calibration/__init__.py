"""Calibration and held-out data: prompts that hide a needle, and the answers that find it."""
