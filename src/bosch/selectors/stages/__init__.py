"""BOSCH, the paper's three stages, and its ablations (paper 2.2 and 3.4)."""
