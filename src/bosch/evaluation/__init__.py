"""How good a model is on the benchmarks of the paper (3.5, B.6), and on any other by way of lm-eval."""
