"""The source for queues of Warren: claims of a batch, by offset, driver and task."""
