"""What a hybrid saves: speed, memory and cache against the context length (paper C.4, Figures 5 and 6)."""
