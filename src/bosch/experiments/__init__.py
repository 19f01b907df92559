"""What scores masks on a model: the search for one, the comparison of methods, the replacement test."""
