"""The host that runs the core: event loop, clock, disk, peers."""
