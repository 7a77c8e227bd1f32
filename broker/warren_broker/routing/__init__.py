"""From a message to the names of its queues."""
