"""Definitions and addresses of links to other brokers."""
