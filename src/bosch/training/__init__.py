"""Continual pretraining (paper 4.4 and B.5): what hybridizing lost is learned again from ordinary text."""
