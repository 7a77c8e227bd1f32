"""A token endpoint and its signing key, on loopback, for tests."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from tests.certificates import Certificate
from tests.signing_key import CLIENT, SigningKey

SECRET = "geheim-4c1d+%/ü"


class Asked(NamedTuple):
    """One request that the endpoint got."""

    path: str
    client: str
    secret: str
    fields: dict[str, str]


class Answer(NamedTuple):
    """One answer of the endpoint; a dict is sent as JSON."""

    status: int = 200
    body: dict[str, Any] | bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class TokenEndpoint:
    """A context manager; answers with what `answer` returns, and keeps what was asked.

    certificate  None: http
    ca_file      of the certificate's authority, for `options`; "": the option is left out
    """

    def __init__(
        self, answer: Callable[[Asked], Answer], certificate: Certificate | None = None
    ) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.ca_file = ""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                endpoint._serve(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        scheme = "http"
        if certificate is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.cert, certificate.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}/oauth/token"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> TokenEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def options(self, **more: str) -> dict[str, str]:
        """Return the connector's options for a client of it."""
        given = {
            "oauthTokenEndpoint": self.url,
            "oauthClientId": CLIENT,
            "oauthClientSecret": SECRET,
            "oauthCaFile": self.ca_file,
            **more,
        }
        return {name: value for name, value in given.items() if value}

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        fields = dict(parse_qsl(body))
        pair = handler.headers.get("Authorization", "").removeprefix("Basic ")
        client, _, secret = base64.b64decode(pair).decode().partition(":")
        if not pair:
            client, secret = fields.pop("client_id", ""), fields.pop("client_secret", "")
        asked = Asked(handler.path, unquote(client), unquote(secret) if pair else secret, fields)
        self.asked.append(asked)
        status, content, headers = self.answer(asked)
        data = json.dumps(content).encode() if isinstance(content, dict) else content
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        if "Content-Length" not in dict(headers):
            handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


def granting(key: SigningKey, life_s: float) -> Callable[[Asked], Answer]:
    """Return what answers CLIENT with tokens of that life, and refuses every other client."""

    def answer(asked: Asked) -> Answer:
        if (asked.client, asked.secret) != (CLIENT, SECRET):
            return Answer(401, {"error": "invalid_client", "error_description": "unknown"})
        token = key.token(life_s)
        return Answer(200, {"access_token": token, "token_type": "bearer", "expires_in": life_s})

    return answer
