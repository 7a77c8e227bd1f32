"""Azure Service Bus's protocol against a stand-in (`service_bus`); not tried on the service."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.select_connection import IOLoop

from connector.amqp10.service_bus import ServiceBus
from pyspark_warren import errors
from pyspark_warren.amqp.connection import parameters
from pyspark_warren.amqp10 import cbs
from pyspark_warren.amqp10.cbs import sas_token
from pyspark_warren.amqp10.session import Session10, SessionIdleError
from pyspark_warren.options.options import Options, parse_options
from tests.patience import PATIENCE_S


def options(bus: ServiceBus, **more: str) -> Options:
    given = {"hosts": bus.hosts, "queue": "orders", "broker": "amqp10", **more}
    if "saslMechanism" not in given:
        given = {"cbs": "sas", "user": "policy", "password": "key", **given}
    return parse_options(given, "read", "stream")


class Receiving:
    """A session in a loop of this thread, with what came."""

    def __init__(self, given: Options) -> None:
        self.loop = IOLoop()
        self.bodies: list[bytes] = []
        self.attempts: list[bool] = []
        self.identities: list[bytes] = []
        self.why: errors.WarrenSparkError | None = None
        self.over = False
        one: pika.ConnectionParameters = parameters(given)[0]
        self.session = Session10(self.loop, given, one, "reading 'orders'", self)

    def began(self, messages: int, consumers: int) -> None:
        """See SessionEvents."""

    def received(self) -> None:
        """See SessionEvents."""
        taken = self.session.take()
        for at in range(taken.count):
            start, end = taken.body.offsets[at : at + 2]
            self.bodies.append(bytes(taken.body.data[start:end]))
            self.identities.append(bytes(taken.identities[16 * at : 16 * at + 16]))
        self.attempts += map(bool, taken.redelivered)

    def ended(self, why: errors.WarrenSparkError | None) -> None:
        """See SessionEvents."""
        self.why, self.over = why, True
        self.loop.stop()

    def until(self, done: Any, then: Any = lambda: None) -> None:
        """Run the loop until that is so."""
        deadline = time.monotonic() + PATIENCE_S

        def look() -> None:
            if done() or self.over:
                then()
                self.loop.stop()
            else:
                assert time.monotonic() < deadline, (self.bodies, self.why)
                self.loop.call_later(0.02, look)

        self.loop.call_later(0, look)
        self.loop.start()

    def close(self) -> None:
        """End it."""
        self.session.close()
        if not self.over:
            self.loop.start()


def test_a_sas_token_is_what_the_document_computes() -> None:
    made = sas_token("sb://n.example/orders", "policy", "key", 1_700_000_000)
    assert made == (
        "SharedAccessSignature sr=sb%3A%2F%2Fn.example%2Forders"
        "&sig=zlgx41OhzBQCHszuKzU836vw8wTWXkj4dSeArP7DkT8%3D&se=1700000000&skn=policy"
    )


def test_a_sas_login_receives_and_settles() -> None:
    with ServiceBus() as bus:
        bus.publish([b"a", b"b", b"c"])
        got = Receiving(options(bus))
        got.until(lambda: len(got.bodies) == 3)
        got.session.ack(2, True)
        got.session.nack(3, requeue=False)
        got.until(lambda: bus.left() == 0)
        got.close()
    ((kind, audience, token),) = bus.seen.tokens
    assert (kind, audience) == ("servicebus.windows.net:sastoken", "sb://127.0.0.1/orders")
    assert token.startswith("SharedAccessSignature sr=sb%3A%2F%2F127.0.0.1%2Forders&sig=")
    assert bus.seen.accepted == [b"a", b"b"]
    ((body, name, info),) = bus.seen.dead
    assert (body, name) == (b"c", "com.microsoft:dead-letter")
    assert info["DeadLetterReason"] == "BatchFailed"
    assert len(set(got.identities)) == 3 and all(each[15] == 1 for each in got.identities)


def test_a_jwt_is_put_and_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("first-token")
    monkeypatch.setattr("pyspark_warren.login.tokens.FILE_POLL_S", 0.3)
    monkeypatch.setattr(cbs, "RENEW_RETRY_S", 0.1)
    with ServiceBus() as bus:
        given = {"cbs": "jwt", "tokenFile": str(file), "cbsAudience": "https://it"}
        made = parse_options(
            {"hosts": bus.hosts, "queue": "orders", "broker": "amqp10", **given}, "read", "stream"
        )
        got = Receiving(made)
        got.until(lambda: bool(bus.seen.tokens))
        file.write_text("second-token")
        got.until(lambda: bus.seen.tokens[-1][2] == "second-token")
        got.close()
    assert bus.seen.tokens[0] == ("jwt", "https://it", "first-token")
    assert bus.seen.connections == 1


def test_a_refused_token_is_named() -> None:
    with ServiceBus(token="another") as bus:
        got = Receiving(options(bus))
        got.until(lambda: got.over)
        assert isinstance(got.why, errors.BrokerRefusedError) and "401" in got.why.text


def test_a_link_without_a_token_is_refused() -> None:
    with ServiceBus() as bus:
        got = Receiving(options(bus, saslMechanism="ANONYMOUS"))
        got.until(lambda: got.over)
        assert isinstance(got.why, errors.BrokerRefusedError)
        assert "unauthorized-access: no token was put" in got.why.text


def test_locks_are_renewed_while_messages_wait() -> None:
    with ServiceBus(lock_s=1.5) as bus:
        bus.publish([b"%d" % n for n in range(20)])
        got = Receiving(options(bus))
        held_s = time.monotonic() + 4.0
        got.until(lambda: time.monotonic() > held_s)
        assert (len(got.bodies), bus.seen.expired) == (20, 0), "none came again"
        assert bus.seen.renewed >= 40
        got.session.ack(20, True)
        got.until(lambda: bus.left() == 0)
        got.close()


def test_a_message_with_a_lost_lock_comes_again_marked() -> None:
    with ServiceBus(lock_s=0.6) as bus:
        bus.publish([b"a"])
        first = Receiving(options(bus))
        first.until(lambda: bool(first.bodies))
        first.session._receiver._transport.abort()  # its process is lost
        first.until(lambda: first.over)
        again = Receiving(options(bus))
        again.until(lambda: bool(again.bodies))
        assert again.attempts == [True] and again.identities == first.identities
        again.close()


def _has(got: Receiving, count: int) -> bool:
    return len(got.bodies) == count


def _is_over(got: Receiving) -> bool:
    return got.over


def test_sessions_are_received_one_after_the_other_and_in_order() -> None:
    with ServiceBus(lock_s=1.5) as bus:
        for n in range(9):
            bus.publish([b"%d" % n], session="abc"[n % 3])
        found: list[list[bytes]] = []
        for _ in range(3):
            got = Receiving(options(bus, messageSession="any", sessionIdle="2s"))
            got.until(partial(_has, got, 3))
            got.session.ack(3, True)
            got.until(partial(_is_over, got))
            assert isinstance(got.why, SessionIdleError)
            found.append(got.bodies)
        assert bus.seen.sessions == ["a", "b", "c"]
        assert found == [[b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5", b"8"]]
        assert bus.seen.sessions_renewed and not bus.seen.expired


def test_one_session_is_received_alone() -> None:
    with ServiceBus() as bus:
        bus.publish([b"x"], session="a")
        bus.publish([b"y", b"z"], session="b")
        got = Receiving(options(bus, messageSession="b"))
        got.until(lambda: len(got.bodies) == 2)
        got.close()
        assert got.bodies == [b"y", b"z"] and bus.left() == 3


def test_a_redirect_is_followed() -> None:
    with ServiceBus() as target, ServiceBus(redirect_to=target.port) as bus:
        target.publish([b"here"])
        got = Receiving(options(bus))
        got.until(lambda: bool(got.bodies))
        assert (got.bodies, got.session._receiver.address) == ([b"here"], "moved")
        got.close()


def test_redirects_in_a_circle_end() -> None:
    with ServiceBus() as bus:
        bus.redirect_to = bus.port
        got = Receiving(options(bus))
        got.until(lambda: got.over)
        assert isinstance(got.why, errors.BrokerUnavailableError) and "redirect" in got.why.text
        assert bus.seen.connections == 4


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cbs": "jwt"}, "cbs=jwt needs a token"),
        ({"cbs": "sas", "tokenFile": "/t"}, "cbs=sas signs its token"),
        ({"cbsAudience": "x"}, "cbsAudience needs cbs"),
        ({"cbs": "sas", "saslMechanism": "ANONYMOUS"}, "leave one of them out"),
        ({"sessionIdle": "5s"}, "sessionIdle needs messageSession=any"),
        ({"saslMechanism": "ANONYMOUS", "user": "u"}, "logs in as nobody"),
        ({"startingOffset": "first"}, "startingOffset is for broker=amqp "),
        ({"broker": "amqp", "cbs": "sas"}, "cbs is for broker=amqp10"),
        ({"broker": "amqp", "saslMechanism": "ANONYMOUS"}, "is for AMQP 1.0 brokers"),
    ],
)
def test_options_that_mean_nothing_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(errors.OptionError, match=text):
        parse_options({"queue": "q", "broker": "amqp10", **given}, "read", "stream")
