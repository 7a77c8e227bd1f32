"""Jobs: work on messages of a queue that continues after a change of leaders."""
