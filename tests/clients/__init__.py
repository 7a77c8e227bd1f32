"""Other people's AMQP 1.0 clients on a cluster: `python3 build.py clients`."""
