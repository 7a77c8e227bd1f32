"""Copies of a cluster: made, restored, and a cluster made of what is left of one."""
