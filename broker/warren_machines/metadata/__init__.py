"""The cluster's definitions as a pure state machine, in group 0 of every node.

commands   commands with their replies        changes    effects for every node
records    declared objects                   view       lookups for a node
machine    MetadataMachine, for the Raft host  codec     submissions and replies as bytes
"""
