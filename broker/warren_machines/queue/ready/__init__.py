"""Ready messages: their order, their blocks, and the consumers that are given them."""
