"""The same scripts against Warren and RabbitMQ: what a client observes must be equal."""
