"""How the verb that runs other people's clients reads what their tests said."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from clients import amqp091_clients, go_client, jvm_clients, python_client, run, suites
from clients import outcome as outcomes
from clients.outcome import NotRun, Outcome

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_good"/>
<testcase classname="tests.test_a" name="test_bad">
<failure message="assert 1 == 2&#10;more"/></testcase>
<testcase classname="tests.test_a" name="test_setup"><error message=""/></testcase>
<testcase classname="tests.test_a" name="test_left_out"><skipped message="no"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read_whole() -> None:
    outcome = Outcome("python")
    outcomes.read_report(REPORT, outcome)
    assert outcome.passed == ["tests.test_a.test_good"]
    assert outcome.failed == ["tests.test_a.test_bad: assert 1 == 2", "tests.test_a.test_setup: "]
    assert outcome.not_applicable == Counter({"skipped by the suite itself": 1})
    assert not outcome.ok


def test_lines_of_a_program_that_are_no_checks_are_ignored() -> None:
    outcome = outcomes.read_checks("qpid-jms", "WARNING: x\npassed one\nfailed two: why\n")
    assert (outcome.passed, outcome.failed) == (["one"], ["two: why"])


def test_tests_that_need_what_warren_does_not_have_are_left_out_for_that_reason() -> None:
    def why(test: str) -> str | None:
        return outcomes.reason_for(test, python_client.NOT_APPLICABLE)

    assert why("tests/test_streams.py::test_read_from_first") == outcomes.STREAMS
    assert why("tests/test_connection.py::test_connection_ssl") == outcomes.TLS_FILES
    assert why("tests/test_connection.py::test_reconnection") == outcomes.HTTP_API
    assert why("tests/test_consumer.py::test_consumer_sync_queue_accept") is None


DIES = """#!/bin/sh
case "$*" in *--collect-only*) echo tests/test_one.py::test_a ;; *) kill -9 $$ ;; esac
"""


def test_a_pytest_that_dies_is_not_said_to_have_been_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = tmp_path / "sources" / python_client.CLIENT / "tests"
    tests.mkdir(parents=True)
    (tests / "test_one.py").touch()
    venv = tmp_path / "python-1"
    (venv / "bin").mkdir(parents=True)
    (venv / "complete").touch()
    (venv / "bin" / "python").write_text(DIES)
    (venv / "bin" / "python").chmod(0o755)
    monkeypatch.setattr(python_client, "PLACE", tmp_path)
    monkeypatch.setattr(python_client, "VERSION", "1")
    outcome = python_client.PythonClient().run(tmp_path / "sources", tmp_path, on_warren=True)
    assert outcome.failed == ["tests/test_one.py: pytest ended with -9, and no report"]


def test_a_suite_that_did_not_run_is_in_the_table_and_is_no_success(tmp_path: Path) -> None:
    for name in ("python", "java", "hop"):
        with pytest.raises(NotRun, match="its package has no tests"):
            suites.SUITES[name].run(None, tmp_path, on_warren=True)
    skipped = Outcome("python", why="its package has no tests")
    whole = Outcome("qpid-jms", passed=["one"], not_applicable=Counter({"streams": 2}))
    lines = run.table([skipped, whole])
    assert lines[2] == "python           not run: its package has no tests"
    assert lines[3].split() == ["qpid-jms", "1", "1", "0", "2"]
    assert lines[4].strip() == "2 not applicable: streams"
    assert whole.ok and not skipped.ok and not Outcome("python").ok


def test_an_unknown_suite_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["jms"])
    assert (
        "unknown suite 'jms'; there are qpid-jms, rhea, proton, go, java, python, amqplib"
        in capsys.readouterr().err
    )


GINKGO = """[{"SpecReports": [
 {"LeafNodeType": "It", "State": "passed", "ContainerHierarchyTexts": ["Queue"],
  "LeafNodeText": "a"},
 {"LeafNodeType": "It", "State": "failed", "ContainerHierarchyTexts": ["Queue"],
  "LeafNodeText": "b", "Failure": {"Message": "Expected\\n  1"}},
 {"LeafNodeType": "It", "State": "skipped", "ContainerHierarchyTexts": ["Consumer stream test"],
  "LeafNodeText": "c"},
 {"LeafNodeType": "It", "State": "skipped", "ContainerHierarchyTexts": null, "LeafNodeText": "d"},
 {"LeafNodeType": "AfterSuite", "State": "failed", "Failure": {"Message": "late"}},
 {"LeafNodeType": "BeforeSuite", "State": "passed"}
]}]"""


def test_a_report_of_ginkgo_is_read_whole() -> None:
    found = go_client.read_ginkgo(GINKGO, "go", go_client.NOT_APPLICABLE)
    assert found.passed == ["Queue a"]
    assert found.failed == ["Queue b: failed: Expected 1", "AfterSuite: late"]
    assert found.not_applicable == Counter({outcomes.STREAMS: 1, outcomes.SKIPPED: 1})


GO_TEST = """=== RUN   TestA
    --- PASS: TestA/part (0.00s)
--- PASS: TestA (0.01s)
--- FAIL: TestB (1.00s)
--- SKIP: TestC (0.00s)
panic: test timed out after 1m0s
"""


def test_what_go_prints_is_read_by_whole_tests() -> None:
    found = amqp091_clients.read_go_test("amqp091-go", GO_TEST)
    assert found.passed == ["TestA"]
    assert found.failed == ["TestB", "panic: test timed out after 1m0s"]
    assert found.not_applicable == Counter({outcomes.SKIPPED: 1})


TAP = """TAP version 13
    # Subtest: one
    ok 1 - one
        not ok 1 - ipv6
        not ok 2 - inner
    not ok 2 - whole
    ok 3 - three
not ok 1 - Connect
ok 2 - alone
"""


def test_of_taps_nested_results_the_innermost_count() -> None:
    found = amqp091_clients.read_tap("amqplib", TAP, amqp091_clients.AMQPLIB_REASONS)
    assert found.passed == ["one", "three", "alone"]
    assert found.failed == ["inner"]
    assert sum(found.not_applicable.values()) == 1


JAVA = """<testsuite>
<testcase classname="c.AmqpTest" name="durableByDefault(QueueType)[2]"/>
<testcase classname="c.AmqpTest" name="durableByDefault(QueueType)[3]"><error message="stream"/>
</testcase>
<testcase classname="c.ClientTest" name="connectionClosing"><error message="exit value: 1"/>
</testcase>
<testcase classname="c.ConsumerOutcomeTest" name="requeued"/></testsuite>"""


def test_tests_that_run_and_do_not_apply_do_not_count() -> None:
    found = Outcome("java")
    outcomes.read_report(JAVA, found, jvm_clients.NOT_APPLICABLE)
    assert len(found.passed) == 2 and found.ok
    assert found.not_applicable == Counter({outcomes.STREAMS: 1, outcomes.COMMANDS: 1})


def test_a_directory_is_filled_once_and_again_after_a_failure(tmp_path: Path) -> None:
    place, calls = tmp_path / "client", []

    def fails() -> None:
        (place / "half").touch()
        raise NotRun("no network")

    with pytest.raises(NotRun):
        outcomes.install_once(place, fails)
    assert not outcomes.installed(place)
    for _ in "ab":
        outcomes.install_once(place, lambda: calls.append((place / "half").exists()))
    assert calls == [False] and outcomes.installed(place)


def test_a_client_is_compiled_again_when_a_source_file_has_changed(tmp_path: Path) -> None:
    source = tmp_path / "src" / "A.java"
    source.parent.mkdir()
    source.write_text("one")
    before = outcomes.copy_of(tmp_path, "java", jvm_clients.SOURCES)
    assert outcomes.copy_of(tmp_path, "java", jvm_clients.SOURCES) == before
    source.write_text("two")
    assert outcomes.copy_of(tmp_path, "java", jvm_clients.SOURCES) != before
