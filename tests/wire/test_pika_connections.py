"""Attempts to connect with pika that end in no opened connection."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any, cast

import pika
import pytest
from pika.adapters.select_connection import IOLoop
from pika.exceptions import AMQPConnectionError

from tests.patience import PATIENCE_S
from tests.resetting_peer import resetting_peer
from warren_wire.sessions.pika_connections import IOServices, blocking_connection


def parameters(host: str, port: int, **more: Any) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(host, port, **more)


def test_a_connection_that_is_reset_at_once_is_an_error_of_pikas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that tried one node after the other ended in a ValueError when a node stopped."""
    with (
        resetting_peer(monkeypatch) as (host, port),
        pytest.raises(AMQPConnectionError, match="as soon as it was made"),
    ):
        blocking_connection(parameters(host, port))


def test_a_loop_that_serves_others_goes_on_after_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ValueError came out of the loop: it had ended for all that it served."""
    loop = IOLoop()
    told: list[BaseException] = []
    with resetting_peer(monkeypatch) as (host, port):
        for _ in range(2):
            pika.SelectConnection(
                parameters(host, port),
                on_open_error_callback=lambda _, wrong: (told.append(wrong), loop.stop()),
                custom_ioloop=IOServices(loop),
            )
            stops = loop.call_later(PATIENCE_S, loop.stop)
            loop.start()
            loop.remove_timeout(stops)
    assert len(told) == 2 and all("as soon as it was made" in repr(each) for each in told), told


def test_a_peer_that_says_nothing_is_an_error_of_pikas() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        with pytest.raises(AMQPConnectionError, match="Timeout"):
            blocking_connection(parameters(host, port, stack_timeout=0.3))


def test_what_is_wrong_with_the_parameters_is_still_said() -> None:
    with pytest.raises(ValueError, match="sequence"):
        blocking_connection(cast(Any, []))


def test_a_peer_that_resets_whenever_it_likes_ends_no_attempt_otherwise() -> None:
    """Without the moment being chosen: 300 connections, each reset as it is accepted."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def resets() -> None:
            with suppress(OSError):
                while True:
                    made, _ = listener.accept()
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    made.close()

        thread = threading.Thread(target=resets, daemon=True)
        thread.start()
        host, port = listener.getsockname()
        for _ in range(300):
            with pytest.raises(AMQPConnectionError):
                blocking_connection(parameters(host, port, socket_timeout=5, stack_timeout=10))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)
