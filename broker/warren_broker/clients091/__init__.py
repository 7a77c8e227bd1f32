"""AMQP 0.9.1: connections and channels as state machines without sockets, and their codec."""
