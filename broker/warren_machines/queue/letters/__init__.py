"""Dead letters: how messages leave, and those that stay until they are forwarded."""
