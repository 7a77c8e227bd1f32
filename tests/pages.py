"""The blocks of pages: which test runs those of each page, and a page as one shell script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w*)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
RUN_S_MAX = 600


@dataclass(frozen=True)
class Block:
    """A fenced block.

    kind     what stands behind the fence
    file     its title; "": none
    heading  the heading of the second level above it; "": the page's first one
    """

    kind: str
    file: str
    text: str
    heading: str


@dataclass(frozen=True)
class Shared:
    """A page that tests/connector/test_pages.py runs, in the cluster of all such pages.

    queues    declared before, with a message in each
    replaced  text of the page → what stands there in the test, with that test's `{places}`
    said      standard input of each command
    """

    queues: tuple[str, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    said: str = ""


REPLACED = {
    "broker1,broker2,broker3": "{hosts}",
    "/data": "{place}",
    "amqp://mover:secret@rabbit.example/%2F": "{far}",
    "amqp://link:secret@rabbit.example/%2F": "{far}",
}
"""What pages have in common."""
SHARED = {
    # The first: `amq.rabbitmq.event` ends with the vhost `/`, which is made again after each page.
    "reference/exchanges.md": Shared(("orders.1", "orders.2", "orders.3", "reminders", "talk")),
    "how-to/backup.md": Shared(
        ("orders",),
        {
            "/backups": "{place}",
            "amqp://admin:secret@host:5672": "{uri}",
            "s3://bucket/": "file://{place}/bucket/",
            "warren-broker": "{python} -m warren_broker",
            # A copy of a directory: of the one that the block before has made.
            "/etc/warren/warren.toml": "{place}/warren.toml",
        },
    ),
    "how-to/definitions.md": Shared(("orders",)),
    "how-to/federation.md": Shared(("orders",)),
    "how-to/form-and-grow.md": Shared(("orders",), {"warren-2": "node-2"}),
    "how-to/migrating.md": Shared((), {"--queues": "--management {api} --queues"}),
    "how-to/other-brokers.md": Shared(
        ("orders",),
        {
            "amqp://app:secret@rabbit1,rabbit2/shop": "{uri}",
            's3://lake/spool/orders")': '{place}/spool").option("broker", "amqp")',
        },
    ),
    "how-to/policies.md": Shared(("orders",), {"node-3": "node-1", "node-4": "node-2"}),
    "how-to/queue-as-table.md": Shared(("flights",), {'format("warren")': "{format}"}),
    "how-to/secrets.md": Shared(
        replaced={'spark.readStream.format("warren").options(': "options_of("}
    ),
    "how-to/shovel.md": Shared(
        ("orders", "orders.dead"), {"amqps://mover:secret@bus.example": "{uri}"}
    ),
    "how-to/spark-3.md": Shared(("flights", "alerts")),
    "how-to/spark.md": Shared(("flights", "alerts")),
    "how-to/users.md": Shared(
        replaced={
            "amqp://127.0.0.1/": "amqp://{host}/",
            "change-password guest": "change-password billing",
        },
        said="a long password\n",
    ),
    "reference/connector-columns.md": Shared(("flights",), {'format("warren")': "{format}"}),
    "reference/connector-options.md": Shared(("flights", "alerts"), {"'…'": "'{hosts}'"}),
    "reference/connector-progress.md": Shared(
        ("flights",),
        {"(flights)": '(spark.readStream.{format}.option("queue", "flights").load())'},
    ),
    "reference/http-api.md": Shared(
        (),
        {"curl": "curl -sSf", "http://127.0.0.1:15672": "{api}", "rabbitmqadmin": "{admin}"},
    ),
}
"""Page → how its blocks are run, all of them in order."""
ELSEWHERE = {
    "README.md": "tests/connector/test_readme.py",
    "how-to/decode.md": "tests/connector/test_body_recipes.py",
    "how-to/exactly-once.md": "tests/live/test_tutorials.py",
    "how-to/kubernetes.md": "tests/chart/page.py",
    "how-to/poison-messages.md": "tests/live/test_tutorials.py",
    "how-to/rabbitmq-streams.md": "tests/connector/amqp/test_spark_source.py",
    "how-to/tuning.md": "tests/live/test_tutorials.py",
    "reference/client.md": "tests/python/test_examples.py",
    "tutorials/first-cluster.md": "tests/live/test_tutorials.py",
    "tutorials/first-spark-query.md": "tests/live/test_tutorials.py",
    "tutorials/rabbitmq-to-parquet.md": "tests/live/test_tutorials.py",
}
"""Page → the file with the test that runs its blocks."""
BY_VERB = {
    ("README.md", "pip install"): ("tools/wheel_trial.py", '"install"'),
    ("README.md", "docker build"): ("tools/image.py", "Containerfile"),
    ("README.md", "python3 build.py demo"): ("build.py", '"demo": demo'),
    ("how-to/install.md", "python3 -m venv"): ("tools/wheel_trial.py", '"install"'),
    ("how-to/install.md", "python3 build.py wheels"): ("tools/image.py", "Containerfile"),
    ("how-to/install.md", "cd deploy"): ("tools/image.py", "compose.yaml"),
    ("how-to/install.md", "apt-get install"): ("tools/deb.py", '"enable", "--now", "warren@1"'),
    ("how-to/lost-majority.md", "warren-broker recover"): (
        "tests/live/test_recover.py",
        '"--as-only-member"',
    ),
    ("how-to/lost-majority.md", "warren queues recover"): (
        "tests/live/test_recover.py",
        '"queues", "recover", "q"',
    ),
    ("how-to/lost-majority.md", "warren queues grow"): ("tests/live/test_recover.py", "grow"),
    ("tutorials/first-cluster.md", "$ python3 -m venv"): ("tools/wheel_trial.py", '"install"'),
    ("tutorials/first-spark-query.md", "$ pip install"): ("tools/wheel_trial.py", '"install"'),
    ("tutorials/rabbitmq-to-parquet.md", "$ pip install"): ("tools/wheel_trial.py", '"install"'),
}
"""Page and how a block begins → the file with what a verb of build.py runs in its place, and a
part of the same command there."""


def pages() -> dict[str, Path]:
    """Return the site's pages and the README, by their names in the tables above."""
    docs = ROOT / "docs"
    found = {page.relative_to(docs).as_posix(): page for page in sorted(docs.rglob("*.md"))}
    return {"README.md": ROOT / "README.md", **found}


def blocks(name: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = pages()[name].read_text(encoding="utf-8")
    found = []
    for one in BLOCK.finditer(text):
        above = re.findall(r"^## (.+)$", text[: one.start()], re.MULTILINE)
        heading = above[-1] if above else ""
        inside = textwrap.dedent(one["text"]) if one["indent"] else one["text"]
        found.append(Block(one["kind"], one["file"] or "", inside, heading))
    return found


def python_blocks(name: str, heading: str | None = None) -> list[str]:
    """Return the Python blocks of a page; heading: those below that one alone."""
    return [
        block.text
        for block in blocks(name)
        if block.kind == "python" and heading in (None, block.heading)
    ]


def placed(name: str, text: str, **places: str) -> str:
    """Return text of a page with what stands there in a test."""
    own = SHARED[name].replaced if name in SHARED else {}
    for old, new in {**own, **REPLACED}.items():
        if old in text:
            text = text.replace(old, new.format_map(places))
    return text


def by_verb(name: str, block: Block) -> tuple[str, str] | None:
    """Return the row of BY_VERB of a block; None without one."""
    found = [
        row
        for (page, words), row in BY_VERB.items()
        if page == name and block.text.startswith(words)
    ]
    return found[0] if found else None


def script(name: str) -> str:
    """Return the page's `sh` and `python` blocks in order; one with a title is a file's content.

    Blocks of other kinds (`console`: what needs the network; `text`) are left out.
    """
    parts = []
    for block in blocks(name):
        if block.kind == "sh":
            parts.append(block.text)
        elif block.kind == "python":
            goal = f"cat > {block.file}" if block.file else "python3 -"
            parts.append(f"{goal} <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK\n")
    assert parts, name
    return "".join(parts)


def run(name: str, place: Path, more: Mapping[str, str] | None = None) -> str:
    """Run the page's blocks in a directory with the environment's commands; return the output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "PYTHONPATH", "WARREN_"))
    }
    done = subprocess.run(
        ["sh", "-eux"],
        input=script(name),
        cwd=place,
        env={**kept, "PATH": path, **(more or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout
