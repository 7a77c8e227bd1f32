"""Routing: from a message to the names of its queues.

topology    Topology.route, dependence: the interface for the broker
matcher      what a type of exchange does, and the types direct and fanout
topic, headers                   one exchange type each
hashing                          the types that choose one destination
surroundings                     which destinations can be chosen on this node
sender_selected                  further routing keys in the headers CC, BCC
"""
