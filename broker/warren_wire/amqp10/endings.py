"""What is still to be done for links and sessions that have ended, so that they end alone.

A client may have many transfers under way when this end detaches its link. Proton takes them, and
counts them in the session's window, but it renews the window in the name of the link that read the
last delivery, and a detached link has no handle any more: the client would get a flow for a handle
that does not exist, and end the connection. So deliveries of such a link are not settled as they
arrive:

1. `discard` asks for a flow of the session, which names no link, and reads them. As long as Proton
   has a flow to send, reading puts no delivery on its list of work.
2. When all output was taken, `settle` has that flow made; now the window is whole, and a delivery
   on the list of work makes no other one.
3. It settles what was read, and frees links that both ends have detached.

Sessions are freed when their end is written and nothing refers to them any more.

Played by tests/broker/clients10/test_endings.py.
"""

from __future__ import annotations

from collections.abc import Callable

from warren_wire.amqp10.deliveries import RELEASED, Handle, handle_of, settle_as
from warren_wire.amqp10.proton import Link, Session, ffi, lib


class Endings:
    """Links that this end has detached, and sessions that both ends have ended.

    make_output  has Proton make the frames that it owes
    begun        sessions that the client has begun and of which the end is not written
    _receiving   by session, its links on which this end receives, as long as they are not freed: a
                 client may end thousands of sessions in one read, and have a thousand links
    _links       by session, links that both ends have detached and that wait to be freed

    Invariant: no delivery of a link without a handle is on Proton's list of work while a flow of
    its session is due. A link and its deliveries are named here until they are freed, and no longer
    """

    def __init__(self, make_output: Callable[[], object]) -> None:
        self.begun = 0
        self._make_output = make_output
        self._read: dict[Handle, list[Handle]] = {}  # by link, to be settled
        self._counts: dict[Handle, int] = {}
        self._receiving: dict[Handle, dict[Handle, None]] = {}
        self._links: dict[Handle, list[Link]] = {}
        self._closed: list[Session] = []  # their end is not written
        self._ended: list[Session] = []  # their end is written

    def opened(self, link: Link) -> None:
        """Note a link that the client has attached."""
        if link.is_receiver:
            handle = handle_of(link)
            self._receiving.setdefault(lib.pn_link_session(handle), {})[handle] = None

    def discard(self, link: Handle) -> int:
        """Read what has arrived for a link that has ended here; return how many messages so far."""
        _renew(lib.pn_link_session(link))
        read = self._read.setdefault(link, [])
        before = len(read)
        _advance(link, read)
        current = lib.pn_link_current(link)
        if current != ffi.NULL:  # there is more of it to come
            size = lib.pn_delivery_pending(current)
            lib.pn_link_recv(link, ffi.new("char[]", size), size)
        self._counts[link] = self._counts.get(link, 0) + len(read) - before
        return self._counts[link]

    def free_link(self, link: Link, *, ended_here: bool) -> None:
        """Free a link that both ends have detached.

        ended_here  this end was the first
        """
        if ended_here and link.is_receiver and link.unsettled:
            self._links.setdefault(lib.pn_link_session(handle_of(link)), []).append(link)
            return
        self._forget(handle_of(link))
        link.free()

    def end_session(self, session: Session) -> None:
        """End a session that the client has ended, with its links; `settle` frees it."""
        renewed = False
        for link in list(self._receiving.get(session._impl, ())):
            if lib.pn_link_unsettled(link) and not renewed:
                renewed = True
                _renew(session._impl)
            while lib.pn_link_current(link) != ffi.NULL:
                lib.pn_link_advance(link)
            self._forget(link)
        self._links.pop(session._impl, None)
        session.close()
        self._closed.append(session)

    def settle(self) -> bool:
        """Settle and free what has ended, now that all output was taken.

        Return whether there may be more output.
        """
        if not (self._read or self._links or self._closed or self._ended):
            return False
        links, self._links = self._links, {}
        detached = [each for of_session in links.values() for each in of_session]
        for each in detached:
            self.discard(handle_of(each))
        for link in self._read:
            _renew(lib.pn_link_session(link))
        self._make_output()
        read, self._read = self._read, {}
        for settled in read.values():
            for delivery in settled:
                settle_as(delivery, RELEASED)
        for each in detached:
            self._forget(handle_of(each))
            each.free()
        self._make_output()
        return self._free_sessions() or bool(read or detached)

    def _free_sessions(self) -> bool:
        """Free ended sessions; return whether there are some of which the end was just written."""
        closed, self._closed = self._closed, []
        self.begun -= len(closed)
        ended, self._ended = self._ended + closed, []
        for session in ended:
            if _is_in_use(session):
                self._ended.append(session)
            else:
                session.free()
        return bool(closed)

    @property
    def waiting(self) -> int:
        """The number of sessions that have ended and cannot be freed yet."""
        return len(self._ended)

    def clear(self) -> None:
        """Forget everything: the connection is freed."""
        self._read.clear()
        self._counts.clear()
        self._receiving.clear()
        self._links.clear()
        self._closed.clear()
        self._ended.clear()

    def _forget(self, link: Handle) -> None:
        self._read.pop(link, None)
        self._counts.pop(link, None)
        session = lib.pn_link_session(link)
        of_session = self._receiving.get(session)
        if of_session is not None:
            of_session.pop(link, None)
            if not of_session:
                del self._receiving[session]


def _is_in_use(session: Session) -> bool:
    """Return whether events, or objects of Proton's binding, refer to a session or a link of it.

    The last such reference to a link of a freed session would have Proton free the link twice: the
    end of a session leaves the links their handles, which makes it keep the link, and free the
    session and with it the link. `session` is one reference itself; counting adds one and drops it.
    """
    lib.pn_incref(session._impl)
    return bool(lib.pn_decref(session._impl) > 1)


def renew_window(link: Link) -> None:
    """Have Proton send a flow of a link's session, without the link, with its whole window."""
    _renew(lib.pn_link_session(handle_of(link)))


def extend_window(link: Link, more_bytes: int) -> None:
    """Have the peer send that much more, or less, on a link's session ahead of reading."""
    session = lib.pn_link_session(handle_of(link))
    capacity = lib.pn_session_get_incoming_capacity(session) + more_bytes
    lib.pn_session_set_incoming_capacity(session, capacity)


def _renew(session: Handle) -> None:
    capacity = lib.pn_session_get_incoming_capacity(session)
    lib.pn_session_set_incoming_capacity(session, capacity)


def _advance(link: Handle, read: list[Handle]) -> None:
    """Drop the bytes of a link's whole deliveries, which stay unsettled."""
    while (delivery := lib.pn_link_current(link)) != ffi.NULL:
        if lib.pn_delivery_partial(delivery) and not lib.pn_delivery_aborted(delivery):
            return
        lib.pn_link_advance(link)
        read.append(delivery)
