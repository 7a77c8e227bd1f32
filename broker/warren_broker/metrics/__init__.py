"""Metrics for Prometheus, named as by RabbitMQ's plugin rabbitmq_prometheus."""
