"""What `/management` answers, as values; the keys are those of RabbitMQ."""
