"""Which test holds Warren to which sentence of RabbitMQ's documents."""
