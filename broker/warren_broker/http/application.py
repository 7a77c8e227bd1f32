"""The ASGI application: credentials, body and path of a request, and the form of its answer."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from warren_broker.http.calls import Credentials, HttpCall, ShownRates, done, in_turns
from warren_broker.http.doors import HttpLogins
from warren_broker.http.frames import ApiJob, NodeAsk, NodeReply
from warren_broker.http.listing import columns_of, paged, shown
from warren_broker.http.node_link import LOGIN_DELAY_S, NodeLink
from warren_broker.http.replies import (
    NO_BODY,
    HttpRefusal,
    HttpReply,
    bad_request,
    login_failed,
    not_authorised,
    refusal_of,
    unavailable,
)
from warren_broker.http.routes import TABLE
from warren_broker.http.routing_table import HttpRoute, segments_of
from warren_broker.http.streams import EventStream, EventStreams, every_s, wants_events
from warren_broker.http.ui_files import UiFiles
from warren_broker.settings.http_settings import ManagementSettings
from warren_wire.admin.users import GetWhoAmIRequest

log = logging.getLogger(__name__)
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

REQUEST_S_MAX: Final = 90.0
"""Limit of a request, from its headers to its answer."""
BODY_S: Final = 30.0
"""Limit of the time in which a body arrives."""
(_WHO,) = GetWhoAmIRequest.ROUTES
QUERY_FIELDS_MAX: Final = 64
CREDENTIALS_CHARACTERS_MAX: Final = 8192


class Disconnected(Exception):
    """The client has left before its request was complete."""


class HttpApplication:
    """Answers requests; every answer of the API but 204 is JSON."""

    def __init__(self, link: NodeLink, job: ApiJob) -> None:
        self._link = link
        self._job = job
        settings = ManagementSettings.model_validate(job.settings)
        self._prefix = settings.path_prefix
        self._body_bytes_max = settings.http.max_body_size
        self.logins = HttpLogins(settings.http.logins_per_address_max)
        interval_s = settings.collect_statistics_interval / 1000
        self._rates = ShownRates(settings.rates_mode, interval_s)
        self._streams = EventStreams()
        self._ui = UiFiles(settings.path_prefix) if settings.ui else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            try:
                reply = await asyncio.wait_for(self._reply(scope, receive), REQUEST_S_MAX)
            except HttpRefusal as refusal:
                reply = refusal.reply
            except TimeoutError:
                reply = unavailable(f"the request took more than {REQUEST_S_MAX:.0f} s").reply
            if isinstance(reply, EventStream):
                newcomer = scope.get("state", {}).get("newcomer")
                await self._streams.run(reply, newcomer, receive, send)
                return
            data = _encoded(reply)
        except Disconnected:
            return
        except Exception as fault:  # the rim of this process: one request ends
            log.exception("a request failed: %s %s", scope["method"], scope["raw_path"])
            shown = f"a fault of the HTTP API: {type(fault).__name__}"
            reply = HttpReply(500, {"error": "internal_server_error", "reason": shown})
            data = _encoded(reply)
        await _send_reply(reply, data, send)

    async def _reply(self, scope: Scope, receive: Receive) -> HttpReply | EventStream:
        method, headers = str(scope["method"]), dict(scope["headers"])
        if self._ui is not None:
            file = self._ui.reply(method, scope["raw_path"], headers)
            if file is not None:
                return file
        segments = segments_of(scope["raw_path"], self._prefix)
        if method == "OPTIONS":
            return HttpReply(200, NO_BODY, {"allow": TABLE.allowed(segments)})
        _check_origin(method, headers)
        credentials = _credentials(headers, _peer(scope))
        tags = await self._logged_in(credentials, scope)
        route, names = TABLE.find(method, segments)
        route.check_tag(tags)
        query = _query(scope["query_string"])
        body = b""
        if method not in ("GET", "HEAD"):
            most = min(route.bytes_max or self._body_bytes_max, self._body_bytes_max)
            body = await self._body(headers, receive, most)
        reason = headers.get(b"x-reason", b"").decode("utf-8", "replace")
        kind = headers.get(b"content-type", b"").decode("latin-1")
        asked = (self._link, self._job, credentials, query, body, tags, self._rates, reason, kind)
        look = partial(_looked, route, names, HttpCall(*asked))
        if method != "GET" or not wants_events(headers):
            return await look()
        every = every_s(route, query, self._rates.interval_s)
        self._streams.check(credentials.user)

        async def again() -> bytes:
            try:
                return _encoded(await asyncio.wait_for(look(), REQUEST_S_MAX))
            except TimeoutError:
                raise unavailable("the node does not answer") from None

        return EventStream(credentials.user, await again(), again, every)

    async def _logged_in(self, who: Credentials, scope: Scope) -> tuple[str, ...]:
        """Return the tags of the user; raises HttpRefusal."""
        login = await self.logins.enter(str((scope["client"] or ("",))[0]))
        try:
            asked = NodeAsk(0, who.peer, who.user, who.password, _WHO.shown, login=True)
            reply = await self._link.ask(asked)
            if reply.condition and reply.status == 401:
                await asyncio.sleep(LOGIN_DELAY_S)
                raise login_failed()
        finally:
            self.logins.turns.end(login)
        if not reply.condition:
            newcomer = scope.get("state", {}).get("newcomer")
            if newcomer is not None:
                newcomer.logged_in()
            return tuple(reply.body["tags"])
        if reply.status == 403:
            raise not_authorised("Not management user")
        raise refusal_of(reply, True)

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive, most: int) -> bytes:
        """Return the whole body; raises HttpRefusal for one that is too large or too slow."""
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > most:
            raise self._too_large(most)
        try:
            return await asyncio.wait_for(self._received(receive, most), BODY_S)
        except TimeoutError:
            raise HttpRefusal(
                408, "request_timeout", f"the body was not complete after {BODY_S:.0f} s"
            ) from None

    async def _received(self, receive: Receive, most: int) -> bytes:
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Disconnected
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > most:
                raise self._too_large(most)
            if not message.get("more_body"):
                return b"".join(pieces)

    def _too_large(self, most: int) -> HttpRefusal:
        setting = "management.http.max_body_size"
        which = setting if most == self._body_bytes_max else "of this path"
        return HttpRefusal(
            400,
            "bad_request",
            f"Exceeded HTTP request body size limit: {most:,} bytes ({which})",
            {"connection": "close"},
        )


async def _looked(route: HttpRoute, names: list[str], call: HttpCall) -> HttpReply:
    """Return what a route answers, with the page and the columns that are asked for."""
    reply = _replied(await route.by(call, *names))
    if route.method != "GET" or reply.status != 200:
        return reply
    found, query = reply.body, dict(call.query)
    if isinstance(found, list):
        if not route.pages and query.get("pagination") != "true":
            query.pop("page", None)
        found = await in_turns(paged(found, query))
    return HttpReply(200, await in_turns(shown(found, columns_of(query))), reply.headers)


def _replied(found: Any) -> HttpReply:
    """Return the answer that a route's function has returned, see `Answering`."""
    if isinstance(found, HttpReply):
        return found
    if isinstance(found, NodeReply):
        return done(found)
    return HttpReply(204) if found is None else HttpReply(200, found)


def _check_origin(method: str, headers: Mapping[bytes, bytes]) -> None:
    """Raise HttpRefusal for what a page of another site could have a browser send.

    1. A browser has asked its user for credentials of the API, and keeps them.  2. A page of
    another site sends a form, or a text, by POST: the browser adds the credentials, and asks
    nothing before.  3. The API would carry it out. Whatever is not GET or POST, or says that it is
    JSON, the browser asks about before (OPTIONS), and the API permits it to no other site.
    """
    if method != "POST" or b"origin" not in headers:
        return
    given = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if given != b"application/json":
        raise HttpRefusal(
            415,
            "unsupported_media_type",
            f"a browser has sent content-type {given[:40].decode('latin-1')!r}: a POST with the "
            "header Origin must have application/json",
        )


def _peer(scope: Scope) -> str:
    host, port = scope["client"] or ("", 0)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _credentials(headers: Mapping[bytes, bytes], peer: str) -> Credentials:
    """Return user and password of basic authentication, or a bearer token as the password.

    Raises HttpRefusal.
    """
    given = headers.get(b"authorization", b"")
    scheme, _, encoded = given.partition(b" ")
    if scheme.lower() == b"bearer":  # RFC 6750; the token says the user
        return Credentials(peer, "", encoded.strip().decode("latin-1"))
    if scheme.lower() != b"basic":
        what = "basic authentication or a bearer token is expected"
        raise login_failed("Not_Authorized" if not given else what)
    if len(encoded) > CREDENTIALS_CHARACTERS_MAX:
        raise login_failed()
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise login_failed() from None
    if not colon:
        raise login_failed()
    return Credentials(peer, user, password)


def _query(text: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            text.decode("latin-1"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError:
        raise bad_request(
            f"the query is not UTF-8, percent-encoded, or has over {QUERY_FIELDS_MAX} fields"
        ) from None
    return dict(pairs)


def _encoded(reply: HttpReply) -> bytes:
    if isinstance(reply.body, bytes):
        return reply.body
    return b"" if reply.body is NO_BODY else msgspec.json.encode(reply.body)


async def _send_reply(reply: HttpReply, data: bytes, send: Send) -> None:
    headers = {
        "cache-control": "no-cache",
        "x-content-type-options": "nosniff",
        **({"content-type": "application/json"} if data else {}),
        **({} if reply.status in (204, 304) else {"content-length": str(len(data))}),
        **reply.headers,
    }
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": encoded})
    await send({"type": "http.response.body", "body": data})
