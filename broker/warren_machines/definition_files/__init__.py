"""Files of definitions in RabbitMQ's JSON format: read, checked against the cluster, written."""
