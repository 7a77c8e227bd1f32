"""Connections between nodes: dialing, handshake, frames, transport."""
