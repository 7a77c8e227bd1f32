"""The connector against any AMQP 1.0 broker (option broker=amqp10), on Warren's own engine."""
