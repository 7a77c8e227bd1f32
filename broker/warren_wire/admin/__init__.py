"""What the cluster's administration says: one module per resource, values and requests, no work."""
