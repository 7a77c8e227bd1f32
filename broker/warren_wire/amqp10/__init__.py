"""AMQP 1.0 over Proton's engine."""
