"""The cluster's definitions as a pure machine."""
