"""Spans of sampled messages, from the loop's thread to the one that exports them."""
