"""From a mask to its score: examples run in batches, remembered in a journal, in this process or on a Ray cluster."""
