"""AMQP 0.9.1 as values and bytes."""
