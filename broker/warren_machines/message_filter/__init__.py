"""Filters of AMQP 1.0 consumers: what an attach asks for, as bytes, and asked of messages."""
