"""The members of queues and the nodes of the cluster: status, changes, reconciliation."""
