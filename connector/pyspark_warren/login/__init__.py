"""Logins: passwords and tokens, and where they come from."""
