"""Real processes under faults: a history is written, then judged."""
