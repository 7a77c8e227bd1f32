"""When a node's certificates end: the health check, the metric, the log."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from live.http_client import http_client
from live.test_prometheus import scraped
from live.test_tls import TlsBroker
from tests.certificates import Authority
from warren_broker.process.certificate_ends import CertificateUnreadable, read_ends, report

CHECK = "/health/checks/certificate-expiration"


@pytest.mark.live
def test_the_check_the_metric_and_the_log_say_when_certificates_end(tmp_path: Path) -> None:
    shown = {
        "management": {"enabled": True, "tcp": {"port": 0}},
        "prometheus": {"enabled": True, "tcp": {"port": 0}},
    }
    with TlsBroker(tmp_path, shown) as broker:  # its certificate has 5 days, its authority 10
        http = http_client(broker.cluster)
        assert http.get(f"{CHECK}/4/days") == {"status": "ok"}
        failed = http("GET", f"{CHECK}/1/Weeks")
        assert failed.status == 503 and failed.body["reason"] == "Certificates expiring"
        [found] = failed.body["expired"]
        assert (found["protocol"], found["port"]) == ("amqp/ssl", broker.port)
        ends = read_ends(broker.own.cert)[0].ends
        assert found["certfile"] == str(broker.own.cert)
        assert found["certfile_expires_on"] == [f"{ends:%Y-%m-%d %H:%M:%S}"]
        assert found["cacertfile_expires_on"] == []
        both = http("GET", f"{CHECK}/1/months").body["expired"][0]
        assert both["certfile_expires_on"] and both["cacertfile_expires_on"]
        for wrong, said in (
            ("x/days", "Invalid expiration value."),
            ("1/fortnights", "Time unit not recognised."),
        ):
            refused = http("GET", f"{CHECK}/{wrong}")
            assert refused.status == 400 and refused.body["reason"].startswith(said)
        assert http("GET", f"{CHECK}/-999999/years").status == 200
        labels = frozenset({"file": str(broker.own.cert)}.items())
        samples = scraped(broker.cluster, 0)
        assert samples["warren_certificate_not_after_seconds", labels] == ends.timestamp()
        log = next(tmp_path.glob("**/log.txt")).read_text()
    assert f"the certificate in {broker.own.cert} ends on {ends:%Y-%m-%d %H:%M} UTC" in log


def test_what_ends_soon_is_a_warning_and_what_has_ended_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Authority(tmp_path).issue("one", days=5)
    ends = read_ends(one.cert)[0].ends

    def levels(left: timedelta) -> list[int]:
        caplog.clear()
        report([one.cert], ends - left)
        return [line.levelno for line in caplog.records]

    assert levels(timedelta(days=31)) == []
    assert levels(timedelta(days=30)) == levels(timedelta(seconds=1)) == [logging.WARNING]
    assert levels(timedelta(0)) == levels(timedelta(days=-3)) == [logging.ERROR]


def test_a_file_without_certificate_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = tmp_path / "wrong.pem"
    for _ in range(2):
        with pytest.raises(CertificateUnreadable, match=str(wrong)):
            read_ends(wrong)
        report([wrong], datetime.now(UTC))
        wrong.write_text("no certificate")
    assert [str(wrong) in line.getMessage() for line in caplog.records] == [True, True]
