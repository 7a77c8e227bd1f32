"""The class-data archive for Spark's JVMs: a session starts in half the processor time.

A JVM that starts Spark parses and verifies about ten thousand classes. The archive has them as the
JVM holds them in memory, and the JVM maps the file instead (JEP 350). It depends on the Java and
the jars; a JVM that finds it unfit ignores it, so it changes nothing but time. The test suite
starts many sessions: it makes the archive first.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tools import console
from tools.environment import LOCK, LOGS, ROOT, STATE, alone, java_environment, python

OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of JVMs that use it: most of them end before an optimizing compiler has paid."""
QUIET = "-Xlog:disable"
READ_BY_DRIVERS_AND_DAEMONS = ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
READ_BY_LAUNCHERS = "SPARK_LAUNCHER_OPTS"
"""Variables that Spark's scripts add to a JVM's options. Before each JVM there is one that makes
its command line, the launcher."""


def path(env: dict[str, str]) -> Path:
    """Return the archive's place for this Java and these jars."""
    key = "\0".join([env["JAVA_HOME"], LOCK.read_text(encoding="utf-8")])
    return STATE / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def spark_environment(*, make: bool) -> dict[str, str]:
    """Return `java_environment` with the archive for Spark's JVMs, if there is one.

    make  make the archive when it is missing: it takes as long as four sessions save
    """
    env = java_environment()
    if make:
        with alone():
            _ensure(env)
    return with_archive(env)


def with_archive(env: dict[str, str]) -> dict[str, str]:
    """Add to an environment with JAVA_HOME the archive for Spark's JVMs, if there is one."""
    archive = path(env)
    if not archive.exists():
        return env
    options = f"{OPTIONS} -XX:SharedArchiveFile={archive} {QUIET}"
    more = dict.fromkeys(READ_BY_DRIVERS_AND_DAEMONS, options) | {READ_BY_LAUNCHERS: OPTIONS}
    return {**env, **{key: f"{value} {env.get(key, '')}".strip() for key, value in more.items()}}


def _ensure(env: dict[str, str]) -> None:
    archive = path(env)
    if archive.exists():
        return
    for outdated in STATE.glob("spark-*.jsa*"):
        outdated.unlink()
    made = archive.with_suffix(".jsa.new")
    flags = f"{OPTIONS} -XX:ArchiveClassesAtExit={made} {QUIET}"
    console.quiet(
        "archiving Spark's classes",
        [str(python()), "-m", "tools.spark_training", flags],
        LOGS / "spark-archive.log",
        env=env,
        cwd=ROOT,
    )
    if made.exists():
        made.rename(archive)
    else:
        console.say(" ! Spark's classes are not archived: sessions start more slowly")
