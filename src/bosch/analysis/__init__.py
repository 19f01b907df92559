"""What masks have in common, what they have not, and what that says: the head analyses of the paper (4.2, 4.3, C.1)."""
