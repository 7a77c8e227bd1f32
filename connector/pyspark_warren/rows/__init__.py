"""Messages as rows: blocks and property lists to Arrow columns, and back."""
