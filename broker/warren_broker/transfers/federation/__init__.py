"""Federated queues: links that fetch messages from upstream queues for local consumers."""
