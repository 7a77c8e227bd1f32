#!/usr/bin/env python3
"""The entry point for work on Warren; needs Python's standard library only.

python3 build.py demo            a year of flights through a three-node cluster into Spark and back
python3 build.py test            style, linters, tests, simulation, the demo at a tenth
python3 build.py long            the tests that take longest, which test leaves out
python3 build.py sim --seed 81   repeat one simulated world
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools import console, environment, interpreter, spark_archive, suite, uplot, wheels
from tools.environment import ROOT, python


def prepare() -> bool:
    """Create the environment and compile the kernel; return whether it is compiled."""
    with environment.alone():
        environment.ensure_venv()
        uplot.ensure()
        return environment.ensure_kernel()


def demo(options: argparse.Namespace) -> int:
    """Run the demo: the main job, with kills, and the proof that nothing was lost."""
    prepare()
    env = spark_archive.spark_environment(make=False)
    return console.loud(suite.demo_command(options.rest), env=env, cwd=ROOT)


def demo_repeat(options: argparse.Namespace) -> int:
    """Run the demo many times, with kills at other moments; stop at the first failure."""
    prepare()
    env = spark_archive.spark_environment(make=True)
    began = time.monotonic()
    for run in range(1, options.runs + 1):
        console.section(f"demo {run} of {options.runs}")
        arguments = ["--fraction", options.fraction, "--seed", str(options.seed + run - 1)]
        code = console.loud(suite.demo_command([*arguments, *options.rest]), env=env, cwd=ROOT)
        if code != 0:
            console.say(
                f"run {run} of {options.runs} failed; again: "
                f"python3 build.py demo {' '.join(arguments)}"
            )
            return code
    console.say(f"\n{options.runs} runs, all exact, {console.took(began)}")
    return 0


def test(options: argparse.Namespace) -> int:
    """Run style, linters, tests (compiled and interpreted kernel), simulation, a small demo."""
    compiled = prepare()
    return suite.Suite(options.fast, options.only, compiled).run()


def long(options: argparse.Namespace) -> int:
    """Run the tests that take longest, which `test` leaves out."""
    compiled = prepare()
    return suite.Suite(False, options.only, compiled, long=True).run()


def structure(options: argparse.Namespace) -> int:
    """Measure the source tree: import cycles, names used twice; --draw; --walks through a node."""
    if "--walks" not in options.rest:
        return console.loud([sys.executable, "-m", "tools.structure", *options.rest], cwd=ROOT)
    environment.ensure_venv()
    environment.ensure_kernel()
    env = environment.environment(PYTHONPATH=str(ROOT))
    return console.loud([str(python()), "-m", "tools.walks"], env=env, cwd=ROOT)


def lint(options: argparse.Namespace) -> int:
    """Run tests/tidy, ruff and mypy, even after one has failed."""
    environment.ensure_venv()
    tidy = [str(python()), "-m", "pytest", "-q", "tests/tidy"]
    console.section("tidy")
    worked = [console.loud(tidy, env=environment.environment(), cwd=ROOT) == 0]
    for name, command in suite.linters(fast=True):
        console.section(name)
        worked.append(console.loud(command, env=environment.environment(), cwd=ROOT) == 0)
    return 0 if all(worked) else 1


def sim(options: argparse.Namespace) -> int:
    """Run simulated worlds: --seeds N, or --seed N for one, --plant NAME for a planted bug."""
    environment.ensure_venv()
    command = [str(python()), "-m", "sim.run", *options.rest]
    return console.loud(command, env=suite.with_tests(environment.environment()), cwd=ROOT)


def run_module(name: str, options: argparse.Namespace, env: dict[str, str], *folders: str) -> int:
    """Run a module with the rest of the command line; folders: what PYTHONPATH is to hold."""
    if folders:
        env = dict(env, PYTHONPATH=os.pathsep.join(str(ROOT / each) for each in folders))
    return console.loud([str(python()), "-m", name, *options.rest], env=env, cwd=ROOT)


def nemesis(options: argparse.Namespace) -> int:
    """Run real nodes under faults and check their history: --minutes N --seed S."""
    prepare()
    return run_module("nemesis.run", options, suite.with_tests(environment.environment()))


def soak(options: argparse.Namespace) -> int:
    """Run nodes under a steady load; fails if their memory grows: --minutes N --rate N."""
    prepare()
    return run_module("soak.run", options, suite.with_tests(environment.environment()))


def upgrade(options: argparse.Namespace) -> int:
    """Roll real nodes under load to the next release, back, and forward (upgrade.md)."""
    prepare()
    return run_module("upgrade.run", options, suite.with_tests(environment.java_environment()))


def backup(options: argparse.Namespace) -> int:
    """Back real clusters up, destroy them, restore them into one node and into five."""
    prepare()
    places = ("tests/live/test_backup.py", "tests/live/test_restore.py")
    options.rest = ["-q", "-s", *places, "tests/connector/test_restored.py"]
    return run_module("pytest", options, suite.with_tests(environment.environment()))


def federation(options: argparse.Namespace) -> int:
    """Run federated clusters under faults and check their history: --clusters N --minutes N."""
    prepare()
    return run_module("nemesis.federation", options, suite.with_tests(environment.environment()))


def mutate(options: argparse.Namespace) -> int:
    """Run the tests on mutants of Raft, recovery, queues: --sample N --seed S, or one part."""
    prepare()
    return run_module("mutation.run", options, suite.with_tests(environment.environment()))


def fuzz(options: argparse.Namespace) -> int:
    """Fuzz the decoders, guided by coverage: --seconds N --runs N --target NAME --replay INPUT."""
    prepare()
    return run_module("tests.fuzz.run", options, environment.environment(), "tests", ".")


def differ(options: argparse.Namespace) -> int:
    """Run the same scripts on Warren and RabbitMQ and compare what a client observes."""
    prepare()
    return run_module("differ.run", options, environment.environment(), "tests", ".")


def shovel(options: argparse.Namespace) -> int:
    """Shovel messages from RabbitMQ to Warren, with a node killed, and back; count them: [N]."""
    prepare()
    return run_module("live.shovel_rabbitmq", options, environment.environment(), "tests", ".")


def migrate(options: argparse.Namespace) -> int:
    """Migrate queues of a RabbitMQ with kills amid it: --messages N --queues N."""
    prepare()
    return run_module("live.migrate_rabbitmq", options, environment.environment(), "tests", ".")


def specification(options: argparse.Namespace) -> int:
    """Write tests/specification/README.md: which test holds Warren to which sentence."""
    prepare()
    return run_module("specification.page", options, suite.with_tests(environment.environment()))


def crashes(options: argparse.Namespace) -> int:
    """Run Spark on real brokers under kills: --runs N --spark VERSION --broker --fault --sink."""
    prepare()
    env = spark_archive.spark_environment(make=True)
    return run_module("spark_world.crash", options, env, "tests/connector", "tests", ".")


def poison(options: argparse.Namespace) -> int:
    """Run Spark with one message of 1,000 that fails, and a kill in the search: --broker NAME."""
    prepare()
    env = spark_archive.spark_environment(make=True)
    return run_module("poison.run", options, env, "tests/connector", "tests", ".")


def bench(options: argparse.Namespace) -> int:
    """Measure against RabbitMQ, other Rafts, a Spark source in memory; see bench/README.md."""
    prepare()
    command = [str(python()), "-m", "bench", *options.rest]
    return console.loud(command, env=environment.java_environment(), cwd=ROOT)


def wheel_files(options: argparse.Namespace) -> int:
    """Build sdist and wheels in dist/, run nodes from them: --only NAME --twice --no-try."""
    with environment.alone():
        environment.ensure_venv()
        uplot.ensure()
    return wheels.run(options.rest)


def image(options: argparse.Namespace) -> int:
    """Build the container image and try it, alone and as a cluster; root, podman, buildah."""
    prepare()
    return run_module("tools.image", options, environment.environment(), ".")


def deb(options: argparse.Namespace) -> int:
    """Build the Debian package and try it in a booted Debian; root, systemd-nspawn."""
    prepare()
    return run_module("tools.deb", options, environment.environment(), ".")


def release(options: argparse.Namespace) -> int:
    """Make a release: changelog, checks, wheels and their hashes, tag: VERSION [--check]."""
    prepare()
    from tools import release as releasing

    return releasing.run(options.rest)


def sparks(options: argparse.Namespace) -> int:
    """Run Spark 4.0 to 4.3 with the wheel, standalone, Connect, Kubernetes; `suite VERSION`."""
    prepare()
    if options.rest[:1] == ["suite"]:
        env = spark_archive.spark_environment(make=False)
        return run_module("sparks.suite", options, env, "tests/connector", "tests", ".")
    if wheels.run(["--only", wheels.here(), "--no-try"]) != 0:
        return 1
    env = environment.java_environment()
    return run_module("sparks.run", options, env, "tests/connector", "tests", ".")


def chart(options: argparse.Namespace) -> int:
    """Install the Helm chart in a real API server, with real nodes beside its pods; Go."""
    prepare()
    return run_module("chart.run", options, suite.with_tests(environment.environment()))


def instructions(options: argparse.Namespace) -> int:
    """Count the instructions of units of work with valgrind; --record: put them on record."""
    prepare()
    return run_module("instructions.measure", options, environment.environment(), "tests", ".")


def clients(options: argparse.Namespace) -> int:
    """Run other people's clients on a cluster: SUITE … --sources DIR --rabbitmq."""
    prepare()
    return run_module("clients.run", options, environment.environment(), "tests", ".")


def databases(options: argparse.Namespace) -> int:
    """Run the jobs of examples/ into databases, lakes, other tools, under kills; name some."""
    prepare()
    env = spark_archive.spark_environment(make=False)
    return run_module("databases.run", options, env, "tests/connector", "tests", ".")


def film(options: argparse.Namespace) -> int:
    """Film the notebook of examples/ and Spark's UI into docs/images; needs Debian's chromium."""
    prepare()
    if shutil.which("chromium") is None:
        console.say(" ! no Chromium: apt-get install chromium")
        return 1
    place = environment.STATE / "film"
    command = [str(python()), "-m", "pip", "--disable-pip-version-check", "install", "--upgrade"]
    wanted = ["--target", str(place), "nbconvert==7.17.2"]
    if not console.quiet(
        "installing nbconvert", [*command, *wanted], environment.LOGS / "film-pip.log"
    ):
        return 1
    paths = os.pathsep.join((str(ROOT), str(place)))
    templates = str(place / "share" / "jupyter")
    env = {**environment.java_environment(), "PYTHONPATH": paths, "JUPYTER_PATH": templates}
    return console.loud([str(python()), "-m", "tools.film"], env=env, cwd=ROOT)


def docs(options: argparse.Namespace) -> int:
    """Build the documentation's site into site/; fails on a broken link, page or anchor."""
    prepare()
    return run_module("tools.site", options, environment.environment())


def recover(options: argparse.Namespace) -> int:
    """Destroy two of three nodes' directories, and most of a queue; recover; print what is left."""
    prepare()
    tests = ["tests/broker/backup", "tests/raft/runtime/test_continued.py"]
    command = [str(python()), "-m", "pytest", "-q", "-s", *tests, "tests/live/test_recover.py"]
    return console.loud(command, env=suite.with_tests(environment.environment()), cwd=ROOT)


def cluster(options: argparse.Namespace) -> int:
    """Start, stop or inspect a local cluster."""
    prepare()
    command = [str(python()), "-m", "warren.cli", "cluster", *(options.rest or ["status"])]
    return console.loud(command, env=environment.environment(), cwd=ROOT)


def clean(options: argparse.Namespace) -> int:
    """Remove everything that build.py made."""
    made = [
        ".venv",
        ".warren",
        "build",
        "dist",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".hypothesis",
        "report",
        "site",
    ]
    with environment.alone():
        for path in [ROOT / name for name in made] + environment.compiled_kernel():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
    return 0


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "demo": demo,
    "test": test,
    "long": long,
    "bench": bench,
    "sim": sim,
    "lint": lint,
    "wheels": wheel_files,
    "image": image,
    "deb": deb,
    "release": release,
    "cluster": cluster,
    "demo-repeat": demo_repeat,
    "clean": clean,
    "nemesis": nemesis,
    "soak": soak,
    "upgrade": upgrade,
    "backup": backup,
    "federation": federation,
    "structure": structure,
    "mutate": mutate,
    "fuzz": fuzz,
    "differ": differ,
    "shovel": shovel,
    "migrate": migrate,
    "specification": specification,
    "crashes": crashes,
    "poison": poison,
    "sparks": sparks,
    "chart": chart,
    "clients": clients,
    "instructions": instructions,
    "databases": databases,
    "film": film,
    "docs": docs,
    "recover": recover,
}
PASSES_ON = (
    "demo",
    "instructions",
    "crashes",
    "poison",
    "sparks",
    "clients",
    "databases",
    "release",
    "wheels",
    "bench",
    "sim",
    "nemesis",
    "soak",
    "federation",
    "mutate",
    "fuzz",
    "differ",
    "shovel",
    "migrate",
    "specification",
    "cluster",
    "demo-repeat",
    "structure",
)
"""Verbs that pass unknown arguments to the program they start."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; arguments for the started program are in `rest`."""
    parser = argparse.ArgumentParser(
        prog="build.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, run in VERBS.items():
        text = (run.__doc__ or "").strip()
        verb = verbs.add_parser(name, help=text, description=text, add_help=name not in PASSES_ON)
        if name == "test":
            verb.add_argument(
                "--fast", action="store_true", help="without slow tests, simulation and demo"
            )
        if name in ("test", "long"):
            verb.add_argument("-k", dest="only", metavar="EXPRESSION", help="as pytest's -k")
        if name == "demo-repeat":
            verb.add_argument("--runs", type=int, default=20)
            verb.add_argument("--fraction", default="0.1", help="of the input, 0 to 1")
            verb.add_argument("--seed", type=int, default=1, help="of the first run's kills")
    options, rest = parser.parse_known_args(arguments)
    if rest and options.verb not in PASSES_ON:
        parser.error(f"unknown arguments for {options.verb}: {' '.join(rest)}")
    options.rest = rest
    return options


def main() -> int:
    """Run one verb; return its exit code."""
    options = parse(sys.argv[1:])
    if sys.flags.optimize:
        console.stop("python -O removes the asserts that this project depends on; run it without")
    interpreter.require()
    os.chdir(ROOT)
    try:
        return VERBS[options.verb](options)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
