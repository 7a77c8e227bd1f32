"""Routing: from a message to the names of its queues.

topology    Topology.route, needs_headers: the interface for the broker
direct, fanout, topic, headers   one exchange type each
sender_selected                  further routing keys in the headers CC, BCC
"""
