"""The core in the real world: loop, clock, peers."""
