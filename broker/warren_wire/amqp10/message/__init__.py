"""AMQP 1.0 messages: as received, stored and sent."""
