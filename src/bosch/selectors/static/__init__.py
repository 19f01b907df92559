"""Static methods (paper B.3): every unit gets a score once, and at each ratio the most local ones slide."""
