"""The connector against any AMQP 0.9.1 broker (option broker=amqp), over pika."""
