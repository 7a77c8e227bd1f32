"""How the verb that runs other people's clients reads what their tests said."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from clients import run, suites
from clients.suites import NotRun, Outcome

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_good"/>
<testcase classname="tests.test_a" name="test_bad">
<failure message="assert 1 == 2&#10;more"/></testcase>
<testcase classname="tests.test_a" name="test_setup"><error message=""/></testcase>
<testcase classname="tests.test_a" name="test_left_out"><skipped message="no"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read_whole() -> None:
    outcome = Outcome("python")
    suites.read_report(REPORT, outcome)
    assert outcome.passed == ["tests.test_a.test_good"]
    assert outcome.failed == ["tests.test_a.test_bad: assert 1 == 2", "tests.test_a.test_setup: "]
    assert outcome.not_applicable == Counter({"skipped by the suite itself": 1})
    assert not outcome.ok


def test_lines_of_a_program_that_are_no_checks_are_ignored() -> None:
    outcome = suites.read_checks("qpid-jms", "WARNING: x\npassed one\nfailed two: why\n")
    assert (outcome.passed, outcome.failed) == (["one"], ["two: why"])


def test_tests_that_need_what_warren_does_not_have_are_left_out_for_that_reason() -> None:
    why = suites.not_applicable
    assert why("tests/test_streams.py::test_read_from_first") == suites.STREAMS
    assert why("tests/test_connection.py::test_connection_ssl") == suites.TLS_FILES
    assert why("tests/test_connection.py::test_reconnection") == suites.HTTP_API
    assert why("tests/test_consumer.py::test_consumer_sync_queue_accept") is None


def test_a_suite_that_did_not_run_is_in_the_table_and_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="its package has no tests"):
        suites.SUITES["python"].run(None, tmp_path, on_warren=True)
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
    assert "unknown suite 'jms'; there are qpid-jms, python" in capsys.readouterr().err
