"""What this node asks of the leaders of queues on behalf of its clients."""
