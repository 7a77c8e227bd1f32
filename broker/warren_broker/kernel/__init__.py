"""The only place where work is done per message."""
