"""Whole nodes in a simulated world: core, storage, host, cluster, metadata and queues as they are.

Only what touches the outside is replaced: the files (`files`), the WAL's thread (`sync`), the
connections between nodes (`wire`), the clock (`process`).
"""
