"""Claims: what readers hold, and the batches that decide about it."""
