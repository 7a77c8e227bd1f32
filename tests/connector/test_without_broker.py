"""The client and the connector in an environment that has none of the broker's packages."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

from tests import pages
from tests.connector.test_readme import RUN_S_MAX
from tools.structure import SOURCES
from warren.admin import Admin
from warren.local import LocalCluster
from warren.producer import Producer

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]

HAVE = ("warren_wire", "warren", "pyspark_warren")
LACK = ("warren_broker", "warren_machines", "warren_raft")
MESSAGES = 500
BEGIN = f"""
import importlib.util
assert not any(importlib.util.find_spec(name) for name in {LACK}), "the broker is here"
"""


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


def without_broker(place: Path) -> Path:
    """Make an interpreter with our packages but for the broker's, and with all others."""
    packages = place / "packages"
    packages.mkdir()
    for name in HAVE:
        (packages / name).symlink_to(SOURCES[name] / name)
    # -S: no .pth file is read, which would name the folder of the broker's packages.
    paths = os.pathsep.join([str(packages), sysconfig.get_paths()["purelib"]])
    interpreter = place / "python"
    interpreter.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{paths}:$PYTHONPATH"\nexec {sys.executable} -S "$@"\n'
    )
    interpreter.chmod(0o755)
    return interpreter


def pipeline(uri: str) -> str:
    """README's pipeline on the queue `flights` of a cluster elsewhere; then back, to `late`."""
    (session,) = pages.python_blocks("README.md")
    lines = session.splitlines()
    first = next(at for at, line in enumerate(lines) if "SparkSession.builder" in line)
    last = next(at for at, line in enumerate(lines) if "awaitTermination" in line)
    imports = [line for line in lines[:first] if line.startswith(("import os", "from pyspark"))]
    body = textwrap.dedent("\n".join(lines[first : last + 1])).replace("cluster.uri", repr(uri))
    back = f"""
rows = spark.read.parquet("out").selectExpr("body", "'late' AS routing_key")
rows.write.format("warren").option("uri", {uri!r}).mode("append").save()
print(rows.count())
"""
    return "\n".join([BEGIN, *imports, body, back])


def test_the_readme_s_pipeline_needs_none_of_the_broker(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with cluster.connect() as connection:
        admin = Admin(connection)
        for name in ("flights", "late"):
            admin.queues.declare(name, arguments={"x-queue-type": "quorum"})
        with Producer(connection) as producer:
            for number in range(MESSAGES):
                producer.send(b'{"flight": %d}' % number, "flights")
    interpreter = without_broker(tmp_path)
    (tmp_path / "session.py").write_text(pipeline(cluster.uri))
    done = subprocess.run(
        [str(interpreter), "session.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "", "PYSPARK_PYTHON": str(interpreter)}
        | {"PYSPARK_DRIVER_PYTHON": str(interpreter)},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split()[-1] == str(MESSAGES)
    with cluster.connect() as connection:
        assert Admin(connection).queues.get("flights").messages == 0
        assert Admin(connection).queues.get("late").messages == MESSAGES
