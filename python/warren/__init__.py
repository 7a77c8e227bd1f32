"""What application programmers import."""
