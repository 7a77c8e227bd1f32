"""Settings of single parts, which `config.py` reads."""
