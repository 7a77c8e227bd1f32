"""From a message to the names of its queues.

topology    Topology.route, needs_headers: what the broker asks
direct, fanout, topic, headers   one exchange type each
sender_selected                  further routing keys in the headers CC, BCC
"""
