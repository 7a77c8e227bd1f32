"""A queue's settings, and the commands that clients name."""
