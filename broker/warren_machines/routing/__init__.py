"""Routing: from a message to the names of its queues.

topology    Topology.route, dependence: the interface for the broker
direct, fanout, topic, headers                one exchange type each
consistent_hash, modulus_hash, random_choice  the types that choose one destination
hashing                          hashes of messages, the choice by weights
surroundings                     which destinations can be chosen on this node
sender_selected                  further routing keys in the headers CC, BCC
"""
