"""Delayed messages: published with a delay, or waiting to be tried again."""
