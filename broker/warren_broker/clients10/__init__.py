"""AMQP 1.0: connections and links as state machines without sockets, and their codec."""
