"""From masks to the files of an analysis, and the table that a terminal shows."""
