"""A peer that resets connections in the moment between pika's two looks at a new socket."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter

from tests.patience import PATIENCE_S

_AT_ONCE = struct.pack("ii", 1, 0)


@contextmanager
def resetting_peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Its host and port; pika of this process meets each reset after it found no error."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        create = SelectorIOServicesAdapter.create_streaming_connection

        def after_the_reset(
            self: Any, protocol_factory: Any, sock: socket.socket, *more: Any, **named: Any
        ) -> Any:
            peer, _ = listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            peer.close()
            _wait_for_the_reset(sock)
            return create(self, protocol_factory, sock, *more, **named)

        monkeypatch.setattr(
            SelectorIOServicesAdapter, "create_streaming_connection", after_the_reset
        )
        yield listener.getsockname()


def _wait_for_the_reset(sock: socket.socket) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            sock.getpeername()
        except OSError:
            return
        time.sleep(0.001)
    raise AssertionError("the reset does not arrive")
