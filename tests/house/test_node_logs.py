"""A failed test shows what its nodes said last."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def test_a_failure_shows_the_ends_of_the_nodes_logs(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.conftest import pytest_runtest_makereport")
    pytester.makepyfile(
        """
        from warren.local_node import new_nodes
        from warren.ports import ReservedPorts

        def test_it(tmp_path):
            for number, node in enumerate(new_nodes(range(2), tmp_path, ReservedPorts())):
                said = "".join(f"node {number} line {line}\\n" for line in range(100))
                node.log_file.write_text(said)
            assert False
        """
    )
    output = pytester.runpytest("-p", "no:cacheprovider").stdout.str()
    assert "the last 40 of 100 lines" in output
    for number in range(2):
        assert f"node {number} line 99" in output and f"node {number} line 60" in output
        assert f"node {number} line 59" not in output
