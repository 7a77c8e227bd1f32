"""The cluster's definitions as a pure machine, in group 0 of every node.

commands   what is submitted and answered      changes    what every node does about it
records    what is declared                    view       what a node looks up
machine    MetadataMachine, for the Raft host  codec      submissions and replies as bytes
"""
