"""Simulated clusters in one process: clock, network and disks are determined by a seed."""
