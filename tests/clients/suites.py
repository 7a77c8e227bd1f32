"""The suites by their names."""

from __future__ import annotations

from clients.go_client import GoClient
from clients.jvm_clients import JavaClient, QpidJms
from clients.outcome import Suite
from clients.python_client import PythonClient
from clients.script_clients import Proton, Rhea

SUITES: dict[str, Suite] = {
    "qpid-jms": QpidJms(),
    "rhea": Rhea(),
    "proton": Proton(),
    "go": GoClient(),
    "java": JavaClient(),
    "python": PythonClient(),
}
