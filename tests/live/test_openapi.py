"""The OpenAPI document held against a node: what schemathesis makes of it is answered as it says.

It asks each operation with values that the document permits and with others, at random and at the
edges; a status that the document lacks, a body of another form or type, and an internal error fail.
"""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.http_client import SETTINGS, HttpClient, http_client
from live.http_keys import define
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]
CHECKS = (
    *("not_a_server_error", "status_code_conformance"),
    *("content_type_conformance", "response_schema_conformance"),
)
LOGIN = f"Authorization: Basic {b64encode(b'guest:guest').decode()}"
NAMES = {"vhost": "/", "queue": "q", "exchange": "x", "user": "u", "component": "shovel"}
"""Names in paths of which there is an object (`http_keys.define`)."""
RUN_S_MAX = 400


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, settings=SETTINGS) as made:
        define(http_client(made), made.nodes[0].amqp_port)
        yield made


def conforms(http: HttpClient, directory: Path, names: dict[str, str], *chosen: str) -> None:
    """Have schemathesis ask; a health check that fails says that the node is not healthy (503)."""
    lines = [f'"path.{name}" = "{value}"' for name, value in names.items()]
    (directory / "schemathesis.toml").write_text(
        "\n".join(
            [
                *("[parameters]", *lines, "[checks.not_a_server_error]"),
                'expected-statuses = ["2xx", "3xx", "4xx", "503"]\n',
            ]
        )
    )
    command = ["run", f"{http.base}/openapi.json", "--header", LOGIN, "--checks", ",".join(CHECKS)]
    command += ["--phases", "coverage,fuzzing", "--max-examples", "3", "--seed", "42"]
    command += ["--suppress-health-check", "all", "--request-timeout", "60", *chosen]
    made = subprocess.run(
        [str(Path(sys.executable).with_name("schemathesis")), *command],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert made.returncode == 0, made.stdout[-8000:] + made.stderr[-2000:]
    assert " 0 generated" not in made.stdout


@pytest.mark.long
def test_what_there_is_is_shown_as_the_document_says(cluster: LocalCluster, tmp_path: Path) -> None:
    conforms(http_client(cluster), tmp_path, NAMES, "--include-method", "GET")


@pytest.mark.long
def test_every_operation_answers_as_the_document_says(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    http = http_client(cluster)
    conforms(http, tmp_path, {})
    assert http.get("/whoami")["name"] == "guest"
    assert "a request failed" not in cluster.log(0) and "Traceback" not in cluster.log(0)
