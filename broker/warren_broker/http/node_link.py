"""The connection of the API's process to its node."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

import msgspec

from warren_broker.http.frames import (
    ASKS_MAX,
    FRAME_HEAD_BYTES,
    REPORT,
    ApiJob,
    NodeAsk,
    NodeReply,
    decode_frame,
    encode_frame,
    frame_size,
)
from warren_broker.http.replies import bad_request, unavailable
from warren_wire.errors import FrameError

GRACE_S: Final = 5.0
"""Beyond the time limit of the node's operations."""
LOGIN_DELAY_S: Final = 1.0
"""Delay of the answer to wrong credentials, which slows down guessing. It is waited for here: the
ask is over, so that it holds no place of ASKS_MAX."""


class NodeLink:
    """Asks for the node's resources; at most ASKS_MAX are under way, others wait for a place.

    Invariant: every number in `_waiting` was sent, and has not been answered.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, job: ApiJob
    ) -> None:
        self.job = job
        self._reader = reader
        self._writer = writer
        self._places = asyncio.Semaphore(ASKS_MAX)
        self._waiting: dict[int, asyncio.Future[NodeReply]] = {}
        self._last = 0
        self._timeout_s = job.timeout_ms / 1000 + GRACE_S

    @classmethod
    async def opened(cls, sock: socket.socket) -> NodeLink:
        """Return the link when the node has sent the job; raises FrameError, EOFError, OSError."""
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, decode_frame(ApiJob, await _frame(reader)))

    async def run(self) -> None:
        """Take the node's answers; returns when the node has ended, or says what is no answer."""
        try:
            while True:
                reply = decode_frame(NodeReply, await _frame(self._reader))
                waiting = self._waiting.pop(reply.number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
        except (EOFError, ConnectionError, FrameError):
            return

    def report(self, counts: dict[str, tuple[int, int, int, int]]) -> None:
        """Tell the node what it shows in its metrics; no answer comes."""
        self._writer.write(encode_frame(NodeAsk(0, "", "", "", REPORT, counts)))

    async def ask(self, asked: NodeAsk) -> NodeReply:
        """Return the node's answer; raises HttpRefusal."""
        async with self._places:
            self._last += 1
            number = self._last
            try:
                frame = encode_frame(msgspec.structs.replace(asked, number=number))
            except OverflowError:
                raise bad_request("a number is too large: 64 bits are the limit") from None
            except TypeError as error:
                raise bad_request(str(error)) from None
            future = self._waiting[number] = asyncio.get_running_loop().create_future()
            try:
                self._writer.write(frame)
                await self._writer.drain()
                return await asyncio.wait_for(future, self._timeout_s)
            except (TimeoutError, ConnectionError):
                raise unavailable("the node does not answer: it is busy, or stops") from None
            finally:
                self._waiting.pop(number, None)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next frame; raises EOFError when the node has ended, ConnectionError."""
    return await reader.readexactly(frame_size(await reader.readexactly(FRAME_HEAD_BYTES)))


def end() -> None:
    """End this process at once, whatever its threads do: the node that it serves has ended."""
    os._exit(0)
