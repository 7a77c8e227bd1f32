"""The suites by their names."""

from __future__ import annotations

from clients.amqp091_clients import AmqpGo, Amqplib
from clients.go_client import AMQP10, RABBIT_HOLE
from clients.http_clients import Hop, RabbitmqAdmin
from clients.jvm_clients import JavaClient, QpidJms
from clients.outcome import Suite
from clients.python_client import PythonClient
from clients.script_clients import Proton, Rhea

SUITES: dict[str, Suite] = {
    "qpid-jms": QpidJms(),
    "rhea": Rhea(),
    "proton": Proton(),
    "go": AMQP10,
    "java": JavaClient(),
    "python": PythonClient(),
    "amqplib": Amqplib(),
    "amqp091-go": AmqpGo(),
    "rabbitmqadmin": RabbitmqAdmin(),
    "rabbit-hole": RABBIT_HOLE,
    "hop": Hop(),
}
