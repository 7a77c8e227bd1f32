"""What a node offers its clients: the cluster's parts put together."""
