"""The cluster's administration: one module per resource with the handlers of its requests."""
