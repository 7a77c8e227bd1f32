"""Tokens: their keys, how these are fetched, logins with them."""
