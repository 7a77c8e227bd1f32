"""RabbitMQ streams over AMQP 0.9.1: offsets of the broker, no receiver and no spool."""
