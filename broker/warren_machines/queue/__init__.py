"""The queue as a pure replicated state machine over runs of messages."""
