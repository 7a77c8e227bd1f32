"""The sink: rows of a partition to blocks or frames, a batch to its publication."""
