"""The examples for tools around Spark, as their commands run them: pipelines, Airflow, dbt.

    python3 build.py databases pipeline airflow dbt

Each is copied from examples/, and runs in an environment with the tool from PyPI.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sparks import venvs

from pyspark_warren.claims.client import connect
from pyspark_warren.options.options import parse_options
from pyspark_warren.rows.rows import ClaimedBlock
from tools.environment import LOGS, ROOT
from warren import Admin, Producer
from warren.local import LocalCluster

PYSPARK: Final = "4.3.0"
AIRFLOW: Final = "apache-airflow==3.1.8"
DBT: Final = ("dbt-core==1.10.3", "dbt-spark==1.9.3")
ORDERS: Final = 200
RUN_S_MAX: Final = 900
CATALOG: Final = "spark.sql.catalogImplementation=hive"
"""The tables of a run are there in the next one."""


def environment_of(python: str) -> dict[str, str]:
    """Return what Spark needs in the environment of its driver."""
    home = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
    for name in ("PYTHONPATH", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON"):
        home.pop(name, None)
    return {**home, "PATH": os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])}


class Example:
    """One example in its own folder and environment, beside a cluster."""

    def __init__(self, name: str, cluster: LocalCluster, directory: Path, *more: str) -> None:
        self.cluster, self.directory = cluster, directory / name
        self.log = LOGS / f"databases-{name}.log"
        self.log.unlink(missing_ok=True)
        shutil.copytree(ROOT / "examples" / name, self.directory)
        python = str(venvs.beside(PYSPARK, *more))
        self.published = 0
        self.env = {**environment_of(python), "WARREN_URI": cluster.uri}
        self.programs = Path(python).parent

    def publish(self) -> None:
        """Publish the next orders."""
        with self.cluster.connect() as connection:
            Admin(connection).queues.declare("orders")
            with Producer(connection) as producer:
                for number in range(self.published, self.published + ORDERS):
                    order = {"number": number, "customer": f"c{number % 7}", "cents": number * 10}
                    producer.send(json.dumps(order), "orders")
        self.published += ORDERS

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program of the environment; its words are in the log."""
        program = str(self.programs / command[0])
        with self.log.open("ab") as said:
            return subprocess.Popen(
                [program, *command[1:]],
                cwd=self.directory,
                env=self.env,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def run(self, *command: str) -> None:
        """Run a program to its end. Raises AssertionError."""
        code = self.start(*command).wait(RUN_S_MAX)
        assert code == 0, f"{' '.join(command)}: exit {code}, see {self.log}"

    def queue(self, name: str = "orders") -> Any:
        """Return what the cluster says of a queue."""
        with self.cluster.connect() as connection:
            return Admin(connection).queues.get(name)

    def done(self, *queues: str) -> None:
        """Delete the queues, for the next example."""
        with self.cluster.connect() as connection:
            for name in queues:
                Admin(connection).queues.delete(name)


def bodies(cluster: LocalCluster, queue: str) -> list[bytes]:
    """Return what is ready in a queue, in delivery order."""
    broker = connect(parse_options({"hosts": cluster.hosts, "queue": queue}, "read"))
    found = []
    for fetched in broker.browse(queue, 1 << 30):
        block = ClaimedBlock.decode(fetched.data, fetched.runs, queue).block
        found += [bytes(block.body(i)) for i in range(block.count)]
    return found


def pipeline(cluster: LocalCluster, directory: Path) -> str:
    """Run the declarative pipeline; kill it while it has read and not settled."""
    example = Example("pipeline", cluster, directory, f"pyspark[pipelines]=={PYSPARK}")
    spec = example.directory / "spark-pipeline.yml"
    here = f"storage: file://{example.directory}/storage"
    spec.write_text(spec.read_text().replace("storage: file:///tmp/orders-pipeline", here))
    with cluster.connect() as connection:
        Admin(connection).queues.declare("large-orders")
    command = ("spark-pipelines", "run", "--conf", CATALOG, "--spec", str(spec))
    example.publish()
    killed = example.start(*command)
    deadline = time.monotonic() + RUN_S_MAX
    while not example.queue().messages_claimed:
        assert killed.poll() is None and time.monotonic() < deadline, f"see {example.log}"
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    for _ in range(2):  # the second one reads what has come since
        example.run(*command)
        example.publish()
    example.run(*command)
    found = Counter(json.loads(body)["number"] for body in bodies(cluster, "large-orders"))
    wanted = Counter(number for number in range(example.published) if number * 10 >= 500)
    lost, doubled = (wanted - found).total(), (found - wanted).total()
    assert not lost and not doubled, f"pipeline: lost {lost}, doubled {doubled}"
    assert example.queue().messages == 0
    example.done("orders", "large-orders")
    return (
        f"pipeline, PySpark {PYSPARK}: {found.total()} of {example.published} orders are large, "
        "killed once: lost 0, doubled 0"
    )


def airflow(cluster: LocalCluster, directory: Path) -> str:
    """Run the DAG twice, with new orders before each run."""
    example = Example("airflow", cluster, directory, AIRFLOW)
    example.env |= {
        "ORDERS": str(example.directory / "orders"),
        "AIRFLOW_HOME": str(example.directory / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(example.directory),
    }
    example.run("airflow", "db", "migrate")
    for _ in range(2):
        example.publish()
        example.run("python", "orders_dag.py")
        assert example.queue().messages == 0
    rows = f"spark.read.parquet({str(example.directory / 'orders' / 'rows')!r})"
    example.run(
        "python",
        "-c",
        "from pyspark.sql import SparkSession; spark = SparkSession.builder.getOrCreate(); "
        f"rows = {rows}; "
        f"assert (rows.count(), rows.distinct().count()) == 2 * ({example.published},)",
    )
    example.done("orders")
    return f"airflow: {example.published} orders in two runs of the DAG: lost 0, doubled 0"


def dbt(cluster: LocalCluster, directory: Path) -> str:
    """Build the model; the queue has what it had."""
    example = Example("dbt", cluster, directory, *DBT)
    example.publish()
    example.run("dbt", "run", "--profiles-dir", ".")
    counted = "select sum(messages) as n from waiting_by_customer having n != " + str(ORDERS)
    (example.directory / "tests").mkdir()
    (example.directory / "tests" / "all_are_counted.sql").write_text(counted)
    example.run("dbt", "test", "--profiles-dir", ".")
    assert example.queue().messages == ORDERS
    example.done("orders")
    return f"dbt: a model of {ORDERS} waiting messages, all still there"


EXAMPLES: dict[str, Callable[[LocalCluster, Path], str]] = {
    "pipeline": pipeline,
    "airflow": airflow,
    "dbt": dbt,
}
