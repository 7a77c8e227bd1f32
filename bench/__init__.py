"""Benchmarks against other brokers and Raft implementations, on this machine."""
