"""Whole clusters in one process, under a clock, a network and disks that a seed decides."""
