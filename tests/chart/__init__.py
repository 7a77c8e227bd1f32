"""The Helm chart, and nodes with the configuration of its pods."""
