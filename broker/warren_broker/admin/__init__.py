"""The management resources: requests, routes, answers."""
