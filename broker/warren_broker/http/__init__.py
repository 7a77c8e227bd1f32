"""RabbitMQ's HTTP API over the resources of `/management`, in a process of its own."""
