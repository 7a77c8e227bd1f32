"""Connections to other brokers, of shovels, links and the connector."""
