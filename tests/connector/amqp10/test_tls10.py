"""TLS at an AMQP 1.0 listener, with a password and with the certificate's user."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from connector.test_tls import given
from pyspark_warren import errors
from pyspark_warren.amqp.detect import detect
from pyspark_warren.options.options import Options, for_broker
from pyspark_warren.sink.others import write_published
from pyspark_warren.sink.writer import Attempt
from pyspark_warren.spool.brokers import SOME, ready_of
from tests.live.test_tls import TlsBroker
from warren.admin import Admin
from warren.connection import Connection
from warren.stages import SinkDriver

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A node of Warren that asks for certificates."""
    directory = tmp_path_factory.mktemp("mutual")
    with TlsBroker(directory, verify="verify_peer", fail_if_no_peer_cert=True) as made:
        yield made


def over10(options: Options) -> Options:
    return for_broker(options, "amqp10", "a test")


def test_a_queue_is_read_and_written_over_tls(mutual: TlsBroker) -> None:
    with Connection(given(mutual, "write").address()) as connection:
        Admin(connection).queues.declare("tls10", arguments={"x-queue-type": "quorum"})
    writing = over10(given(mutual, "write", routingKey="tls10"))
    rows = pa.record_batch({"body": pa.array([b"x"], pa.binary())})
    attempt = Attempt.drawn(SinkDriver("s", "r", 1), 1, 0)
    assert write_published(writing, attempt, iter([rows]), "publishing").rows == 1
    reading = over10(given(mutual, "read", queue="tls10"))
    assert ready_of(reading, "looking") == SOME
    with pytest.raises(errors.BrokerRefusedError, match="not-found"):
        ready_of(over10(given(mutual, "read", queue="no-queue")), "looking")
    assert detect(given(mutual, "read", queue="tls10")).broker == "warren"


def test_a_certificate_without_a_user_is_refused(mutual: TlsBroker) -> None:
    given_external = {"saslMechanism": "EXTERNAL", "requestTimeout": "20s"}
    options = over10(given(mutual, "read", queue="q", **given_external))
    with pytest.raises(errors.BrokerRefusedError, match="refuses the login"):
        ready_of(options, "looking")
    wrong = over10(given(mutual, "read", queue="q", caFile="", requestTimeout="20s"))
    with pytest.raises(errors.BrokerRefusedError, match="caFile"):
        ready_of(wrong, "looking")
