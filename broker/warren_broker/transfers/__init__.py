"""Messages brought from and to other brokers: shovels, federation."""
