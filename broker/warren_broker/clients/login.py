"""The login of a client, for both protocols."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from warren_broker.access.requests import TokenAccepted
from warren_broker.broker.broker import Broker
from warren_broker.clients.connection_events import ConnectionEvents
from warren_broker.clients.connection_log import ConnectionLog
from warren_broker.cluster.logins import Answer, Entered
from warren_broker.cluster.strangers import WaitingLogin
from warren_broker.counting.counters import PROTOCOLS
from warren_raft.runtime.net.stream import Stream
from warren_raft.runtime.net.tls import TlsStream
from warren_wire import errors
from warren_wire.certificate_login import EXTERNAL, CertificateLogin, login_name

LOGIN_REFUSED_DELAY_MS = 1000
"""Delay of the answer to a wrong password, which slows down guessing."""


def check_login(
    broker: Broker,
    peer: str,
    login: tuple[str, str, str],
    done: Callable[[Entered, str], None],
    counted: str = "",
) -> None:
    """Call `done` with what `NodeLogins.authenticate` answers, and why it was refused.

    counted  the protocol as which the login is counted; "": it is not
    peer   the client's address and port
    login  user, password, SASL mechanism
    """
    user, password, mechanism = login

    def told(result: Entered, why: str) -> None:
        refused = isinstance(result, errors.LoginRefused)
        if counted and (refused or not isinstance(result, errors.Refusal)):
            broker.cluster.counters.logged_in(counted, not refused)
        done(result, why)

    def checked(result: Entered) -> None:
        if isinstance(result, errors.LoginRefused):
            told(result, errors.LoginRefused.why if mechanism != EXTERNAL else _why_not(user))
        elif isinstance(result, errors.Refusal):
            told(result, "")
        elif isinstance(result, TokenAccepted) and result.rights.of_link:
            told(result, "")  # it is on this node, wherever its user is; see LinkLogins.refusal
        elif name_of(result, user) in broker.settings.loopback_users and not is_loopback(peer):
            why = "this user can only connect via localhost (loopback_users)"
            told(errors.login_refused(mechanism), why)
        else:
            told(result, "")

    broker.logins.authenticate(user, password, mechanism, checked)


def name_of(result: Entered, user: str) -> str:
    """Return the user that has logged in: a token says its own, whatever name came with it."""
    return result.rights.user if isinstance(result, TokenAccepted) else user


def log_in(
    broker: Broker,
    log: ConnectionLog,
    peer: str,
    login: tuple[str, str, str],
    done: Answer,
    events: ConnectionEvents,
    protocol: str,
    gone: Callable[[], bool],
    guard: Callable[[Callable[[WaitingLogin], None]], Callable[[WaitingLogin], None]],
) -> None:
    """Call `done` with what `NodeLogins.authenticate` answers, LoginRefused after
    LOGIN_REFUSED_DELAY_MS.

    Logins of an address wait for each other when there are too many; those of others do not.

    peer   the client's address and port
    login  user, password, SASL mechanism
    protocol  its version
    gone   whether the client has hung up
    guard  ends the connection when the check fails by a fault
    """
    user, _, mechanism = login
    turns, door = broker.strangers.logins, f"AMQP {protocol}"

    def check(attempt: WaitingLogin) -> None:
        def answer(result: Entered) -> None:
            turns.end(attempt)
            done(result)

        def checked(result: Entered, why: str) -> None:
            if not isinstance(result, errors.Refusal):
                events.logged_in(name_of(result, user), mechanism, None)
                broker.audit.login(door, name_of(result, user), peer, mechanism, None)
            if not isinstance(result, errors.LoginRefused):
                answer(result)
                return
            log.login_refused(user, mechanism, why)
            events.logged_in(user, mechanism, why)
            broker.audit.login(door, user, peer, mechanism, why)
            broker.cluster.loop.call_later(LOGIN_REFUSED_DELAY_MS, lambda: answer(result))

        try:
            check_login(broker, peer, login, checked, PROTOCOLS[protocol])
        except Exception:
            turns.end(attempt)
            raise  # to the connection, which it ends

    host = peer.rpartition(":")[0].strip("[]")
    turns.arrive(WaitingLogin(turns, host, guard(check), gone, done))


def _why_not(user: str) -> str:
    if user:
        return "no user has the name in the client's certificate"
    return "no name found in the client's certificate where ssl_cert_login_from says"


def external_user(stream: Stream, login: CertificateLogin | None) -> str | None:
    """Return the user in the client's verified certificate; "": it names none.

    None: the client has given none, or no client may log in with one.
    """
    certificate = stream.peer_certificate if isinstance(stream, TlsStream) else {}
    return login_name(certificate, login) if certificate and login is not None else None


def is_loopback(peer: str) -> bool:
    """Return whether the address of a client (`address:port`) is one of this machine."""
    try:
        address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
