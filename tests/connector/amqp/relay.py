"""A relay between a client and a broker, whose connections a test cuts or silences."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

CHUNK_BYTES = 64 << 10


class Relay:
    """Listens on loopback and forwards to one port; a context manager.

    made       how many connections there were
    forwarded  bytes from clients to the broker
    cut_after  the connections are cut once so many bytes were forwarded; then it is None
    cut_each   each connection is cut once it has carried so many bytes to the broker
    silent     answers of the broker are withheld
    refusing   new connections end at once, as those do that find no broker
    hidden     these bytes of the broker reach no client: others of the same length do
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.made = 0
        self.forwarded = 0
        self.cut_after: int | None = None
        self.cut_each: int | None = None
        self.silent = False
        self.refusing = False
        self.hidden = b""

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End every connection, as a broken network does."""
        with self._lock:
            gone, self._open = self._open, []
        for each in gone:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                if self.refusing:
                    raise ConnectionRefusedError
                broker = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self.made += 1
                self._open += [client, broker]
            threading.Thread(target=self._forward, args=(client, broker), daemon=True).start()
            threading.Thread(target=self._answer, args=(broker, client), daemon=True).start()

    def _forward(self, client: socket.socket, broker: socket.socket) -> None:
        carried = 0
        with suppress(OSError):
            while data := client.recv(CHUNK_BYTES):
                broker.sendall(data)
                self.forwarded += len(data)
                carried += len(data)
                if self.cut_each is not None and carried >= self.cut_each:
                    break
                if self.cut_after is not None and self.forwarded >= self.cut_after:
                    self.cut_after = None
                    self.cut()
        self._end(client, broker)

    def _answer(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := broker.recv(CHUNK_BYTES):
                if self.hidden:
                    data = data.replace(self.hidden, b"-" * len(self.hidden))
                if not self.silent:
                    client.sendall(data)
        self._end(client, broker)

    def _end(self, *ends: socket.socket) -> None:
        for each in ends:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
