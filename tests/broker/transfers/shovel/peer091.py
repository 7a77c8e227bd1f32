"""A peer that speaks as much AMQP 0.9.1 as a shovel's source needs, and then what a test wants."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from typing import Any

from pika import BasicProperties, spec
from pika.frame import Body, Header, Heartbeat, Method, decode_frame

PROTOCOL_BYTES = 8
BEAT_S = 0.05
FRAME_MAX = 131_072


class Peer091:
    """One connection at a time, each with the same script.

    answers  names of methods that it answers after the login, such as "Channel.Open"
    floods   what it sends once it has answered basic.consume: messages, "frame" announces a frame
             without end, "message" such a message
    tls      its context; None: it speaks plain text
    closes   code and text with which it refuses the vhost; None: it does not
    """

    def __init__(
        self,
        *answers: str,
        floods: list[bytes] | str = "",
        tls: ssl.SSLContext | None = None,
        closes: tuple[int, str] | None = None,
    ) -> None:
        self._answers = {"Connection.Close", *answers}
        self._floods = floods
        self._tls = tls
        self._closes = closes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sending = threading.Lock()
        self.address: tuple[str, int] = self._listener.getsockname()
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Peer091:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                made = self._listener.accept()[0]
            except OSError:
                return
            try:
                made = self._secured(made)
                self._speak(made)
            except (OSError, EOFError):
                made.close()
            self.ended.set()

    def _secured(self, plain: socket.socket) -> socket.socket:
        """Shake hands; after a failure wait for the other end, so that it reads the alert."""
        if self._tls is None:
            return plain
        made = self._tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        try:
            made.do_handshake()
        except ssl.SSLError as error:
            with socket.socket(fileno=made.detach()) as left:
                while left.recv(1 << 12):
                    pass
            raise EOFError from error
        return made

    def _send(self, peer: socket.socket, data: bytes) -> None:
        with self._sending:
            peer.sendall(data)

    def _speak(self, peer: socket.socket) -> None:
        if not peer.recv(PROTOCOL_BYTES, socket.MSG_WAITALL if self._tls is None else 0):
            raise EOFError
        start = spec.Connection.Start(
            server_properties={"capabilities": {"basic.nack": True, "publisher_confirms": True}},
            mechanisms="PLAIN",
            locales="en_US",
        )
        self._send(peer, Method(0, start).marshal())
        buffer = b""
        while True:
            data = peer.recv(1 << 16)
            if not data:
                raise EOFError
            buffer += data
            while True:
                taken, found = decode_frame(buffer)
                if not taken:
                    break
                buffer = buffer[taken:]
                if isinstance(found, Method):
                    self._answer(peer, found)

    def _answer(self, peer: socket.socket, asked: Any) -> None:
        method, name = asked.method, asked.method.NAME
        made: dict[str, Any] = {
            "Connection.StartOk": lambda: spec.Connection.Tune(2047, FRAME_MAX, 1),
            "Connection.Open": spec.Connection.OpenOk,
            "Connection.Close": spec.Connection.CloseOk,
            "Channel.Open": spec.Channel.OpenOk,
            "Channel.Close": spec.Channel.CloseOk,
            "Queue.Declare": lambda: spec.Queue.DeclareOk(method.queue, 0, 0),
            "Basic.Qos": spec.Basic.QosOk,
            "Basic.Consume": lambda: spec.Basic.ConsumeOk(method.consumer_tag),
        }
        if name == "Connection.Open" and self._closes is not None:
            self._send(peer, Method(0, spec.Connection.Close(*self._closes, 0, 0)).marshal())
            return
        if name not in made or (name not in self._answers and asked.channel_number):
            return
        self._send(peer, Method(asked.channel_number, made[name]()).marshal())
        if name == "Connection.Open":
            threading.Thread(target=self._beat, args=(peer,), daemon=True).start()
        elif name == "Basic.Consume":
            args = (peer, asked.channel_number, method.consumer_tag)
            threading.Thread(target=self._flood, args=args, daemon=True).start()

    def _beat(self, peer: socket.socket) -> None:
        """A peer that hangs has heartbeats all the same."""
        try:
            while not self.ended.wait(BEAT_S):
                self._send(peer, Heartbeat().marshal())
        except OSError:
            return

    def _flood(self, peer: socket.socket, channel: int, tag: str) -> None:
        def delivery(number: int, size: int) -> bytes:
            method = Method(channel, spec.Basic.Deliver(tag, number, False, "", "key")).marshal()
            return method + Header(channel, size, BasicProperties()).marshal()

        try:
            if self._floods == "frame":
                self._send(peer, struct.pack(">BHI", 3, channel, (1 << 32) - 1))
            elif self._floods == "message":
                self._send(peer, delivery(1, 1 << 40) + Body(channel, b"x" * 1024).marshal())
            else:
                for number, body in enumerate(self._floods, 1):
                    assert isinstance(body, bytes)
                    self._send(peer, delivery(number, len(body)) + Body(channel, body).marshal())
        except OSError:
            return
