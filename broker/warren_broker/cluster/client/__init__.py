"""This node's requests to the leaders of queues on behalf of its clients."""
