"""OAuth 2: the options, the request to a token endpoint, and every wrong answer to it."""

from __future__ import annotations

import json
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from connector.oauth.endpoint import SECRET, Answer, Asked, TokenEndpoint
from pyspark_warren.amqp.connection import open_any, parameters
from pyspark_warren.errors import BrokerUnavailableError, OptionError, TokenError, WarrenSparkError
from pyspark_warren.login import endpoint as token_endpoint
from pyspark_warren.login.endpoint import request_token
from pyspark_warren.login.tokens import login_of, token_source
from pyspark_warren.options.connection import OauthOptions
from pyspark_warren.options.options import Options, for_broker, parse_options
from pyspark_warren.spool.stdio import ReceiverTask
from tests.certificates import Authority
from tests.patience import PATIENCE_S, TooSlow, with_time_enough
from tests.signing_key import CLIENT, SigningKey

TOKEN = "t0ken-9b2e"


def read(**given: str) -> Options:
    return parse_options({"queue": "q", "broker": "amqp", **given}, "read")


def client_of(**given: str) -> OauthOptions:
    found = login_of(read(**given))
    assert found is not None
    return found


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    """It grants TOKEN for an hour."""
    granted = Answer(200, {"access_token": TOKEN, "expires_in": 3600})
    with TokenEndpoint(lambda _: granted) as made:
        yield made


# ------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"oauthClientId": "a"}, "oauthClientId needs oauthTokenEndpoint"),
        ({"oauthTokenEndpoint": "https://a/t"}, "needs oauthClientId"),
        (
            {"oauthTokenEndpoint": "https://a/t", "oauthClientId": "a"},
            "needs the client's secret: oauthClientSecret, oauthClientSecretFile or",
        ),
        ({"oauthScope": "x"}, "oauthScope needs oauthTokenEndpoint"),
        (
            {"oauthClientSecret": SECRET, "oauthClientSecretEnv": "V", "oauthClientId": "a"}
            | {"oauthTokenEndpoint": "https://a/t"},
            "oauthClientSecret and oauthClientSecretEnv both say the secret",
        ),
        ({"tokenFile": "/t", "oauthClientId": "a"}, "tokenFile and oauthClientId both"),
        ({"tokenFile": "/t", "password": SECRET}, "tokenFile and password both say how to log in"),
        ({"oauthClientId": "a", "passwordEnv": "V"}, "oauthClientId and passwordEnv both"),
        ({"tokenFile": "/t", "uri": "amqp://u:geheim@a"}, "uri has a password; leave out token"),
        (
            {"tokenFile": "/t", "tls": "true", "saslMechanism": "EXTERNAL", "certFile": "/c"},
            "tokenFile means nothing with saslMechanism=EXTERNAL",
        ),
        ({"oauthTokenEndpoint": "http://login.example.com/t"}, "http:// sends the client's secret"),
        ({"oauthTokenEndpoint": "https://a:geheim@b/t"}, "it has credentials"),
        ({"oauthTokenEndpoint": "login.example.com"}, "it is no URL"),
        ({"oauthTokenEndpoint": "https://a:0/"}, "it is no URL"),
        ({"oauthTokenEndpoint": "https://[a/"}, "it is no URL"),
        ({"oauthTokenEndpoint": "https://a/b c"}, "it has signs"),
        ({"oauthClientSecretEnv": f"{SECRET}!"}, "oauthClientSecretEnv: give a variable's name"),
        ({"oauthClientAuth": "digest"}, "client_secret_basic or client_secret_post"),
    ],
)
def test_contradictions_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says) as told:
        read(**given)
    assert SECRET not in str(told.value) and "geheim" not in str(told.value)


def test_both_kinds_of_broker_take_tokens() -> None:
    options = parse_options({"queue": "q", "tokenFile": "/t"}, "read")
    for kind in ("warren", "amqp"):
        assert for_broker(options, kind, kind).token_file == "/t"


def test_the_secret_is_in_nothing_that_is_printed(endpoint: TokenEndpoint) -> None:
    options = read(**endpoint.options())
    found = login_of(options)
    source = token_source(options)
    assert source is not None
    for shown in (repr(options), str(found), repr(found), repr(source.token()), repr(source)):
        assert SECRET not in shown and TOKEN not in shown


def test_with_a_file_the_secret_is_in_no_option_and_is_read_for_each_token(
    endpoint: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    of_file = endpoint.options(oauthClientSecret="", oauthClientSecretFile=str(file))
    of_variable = endpoint.options(oauthClientSecret="", oauthClientSecretEnv="SPARK_TEST_SECRET")
    with pytest.raises(OptionError, match="oauthClientSecretFile=.*cannot be read"):
        request_token(client_of(**of_file))
    with pytest.raises(OptionError, match="oauthClientSecretEnv=.*is not set"):
        request_token(client_of(**of_variable))
    monkeypatch.setenv("SPARK_TEST_SECRET", SECRET)
    for secret in (SECRET, "changed"):
        file.write_text(f"{secret}\n")
        request_token(client_of(**of_file))
    request_token(client_of(**of_variable))
    assert [asked.secret for asked in endpoint.asked] == [SECRET, "changed", SECRET]
    for given in (of_file, of_variable):
        assert SECRET.encode() not in pickle.dumps(read(**given))


def test_options_of_tokens_reach_the_receiver(endpoint: TokenEndpoint) -> None:
    options = read(**endpoint.options(oauthScope="a"))
    line = json.loads(json.dumps(asdict(ReceiverTask(options, "r", 0, False))))
    assert login_of(ReceiverTask.read(line).options) == login_of(options)


# ------------------------------------------------------------------ the request


@pytest.mark.parametrize("auth", ["client_secret_basic", "client_secret_post"])
def test_the_request_is_that_of_rfc_6749(endpoint: TokenEndpoint, auth: str) -> None:
    given = endpoint.options(oauthScope="a b", oauthAudience="urn:q", oauthClientAuth=auth)
    assert request_token(client_of(**given)) == (TOKEN, 3600.0)
    fields = {"grant_type": "client_credentials", "scope": "a b", "audience": "urn:q"}
    assert endpoint.asked == [Asked("/oauth/token", CLIENT, SECRET, fields)]


def test_the_query_of_the_url_is_kept(endpoint: TokenEndpoint) -> None:
    given = endpoint.options(oauthTokenEndpoint=f"{endpoint.url}?tenant=7")
    request_token(client_of(**given))
    assert endpoint.asked[0].path == "/oauth/token?tenant=7"


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (Answer(401, {"error": "invalid_client"}), TokenError, "401: invalid_client; check oauthC"),
        (
            Answer(400, {"error": "invalid_scope", "error_description": f"no {SECRET}\n"}),
            TokenError,
            r"400: invalid_scope: no \*\*\* ; check",
        ),
        (Answer(403, b"<html>forbidden " + TOKEN.encode()), TokenError, "answers 403; check"),
        (Answer(503, b""), BrokerUnavailableError, "answers 503"),
        (Answer(429, b""), BrokerUnavailableError, "answers 429"),
        (Answer(200, b"<html>" + TOKEN.encode()), TokenError, "that are no token: a JSON object"),
        (Answer(200, b"\xff\xfe"), TokenError, "2 bytes of .* that are no token"),
        (Answer(200, b""), TokenError, "0 bytes of .* that are no token"),
        (Answer(200, b"[" * 100_000), TokenError, "that are no token"),
        (Answer(200, {"token": TOKEN}), TokenError, "that are no token"),
        (Answer(200, {"access_token": 7}), TokenError, "that are no token"),
        (Answer(200, b'["' + TOKEN.encode() + b'"]'), TokenError, "that are no token"),
        (
            Answer(200, {"access_token": TOKEN, "expires_in": "soon"}),
            TokenError,
            "expires_in is no",
        ),
        (Answer(200, {"access_token": TOKEN, "expires_in": -1}), TokenError, "expires_in is no"),
        (Answer(200, {"access_token": TOKEN, "expires_in": 0}), TokenError, "expires_in is no"),
        (Answer(200, {"access_token": TOKEN, "expires_in": "nan"}), TokenError, "expires_in is no"),
        (Answer(200, {"access_token": TOKEN + "\0"}), TokenError, "other signs than printable"),
        (Answer(200, {"access_token": ""}), TokenError, "other signs than printable"),
        (Answer(200, {"access_token": TOKEN * 7_000}), TokenError, r"\d{5} bytes, 65536 are the"),
        (Answer(200, b" " * (128 << 10) + b"{}"), TokenError, "more than 131072 bytes, the limit"),
        (
            Answer(200, b"{", (("Content-Length", "9"),)),
            BrokerUnavailableError,
            "ended the connection within its answer",
        ),
        (
            Answer(302, b"", (("Location", f"http://127.0.0.1:1/{TOKEN}"),)),
            TokenError,
            "answers 302, a redirect, which is not followed",
        ),
        (
            Answer(307, b"", (("Location", "http://127.0.0.1:1/"),)),
            TokenError,
            "answers 307, a redirect",
        ),
    ],
)
def test_a_wrong_answer_is_named_and_shows_nothing_secret(
    answer: Answer, kind: type[WarrenSparkError], says: str
) -> None:
    with TokenEndpoint(lambda _: answer) as endpoint:
        source = token_source(read(**endpoint.options()))
        assert source is not None
        with pytest.raises(WarrenSparkError, match=says) as told:
            source.token()
        assert type(told.value) is kind
        shown = f"{told.value!r} {told.value} {told.value.__cause__}"
        assert SECRET not in shown and TOKEN not in shown
        assert f"token endpoint 127.0.0.1:{endpoint.url.split(':')[2].split('/')[0]}" in shown
        assert len(endpoint.asked) == 1


def test_a_life_in_quotes_and_none_at_all(endpoint: TokenEndpoint) -> None:
    endpoint.answer = lambda _: Answer(200, {"access_token": TOKEN, "expires_in": "90"})
    assert request_token(client_of(**endpoint.options())) == (TOKEN, 90.0)
    endpoint.answer = lambda _: Answer(200, {"access_token": TOKEN})
    assert request_token(client_of(**endpoint.options())) == (TOKEN, None)


def test_a_token_that_had_expired_when_it_came(tmp_path: Path) -> None:
    token = SigningKey(tmp_path).token(-30)
    with TokenEndpoint(lambda _: Answer(200, {"access_token": token})) as endpoint:
        source = token_source(read(**endpoint.options()))
        assert source is not None
        with pytest.raises(TokenError, match=r"has expired, \d+ s ago; compare") as told:
            source.token()
        assert token not in str(told.value)


def raw_server(serve: Any) -> str:
    """Answer one connection with `serve`; return the URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener:
            made, _ = listener.accept()
            with made:
                try:
                    serve(made)
                except OSError:
                    pass

    threading.Thread(target=run, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/token"


def drip(data: bytes) -> Any:
    """Return what sends a byte now and then, each within a socket's own limit."""

    def serve(made: socket.socket) -> None:
        made.recv(1 << 16)
        for at in range(len(data)):
            made.sendall(data[at : at + 1])
            time.sleep(0.1)

    return serve


def saying(data: bytes) -> Any:
    """Return what reads the request and sends that."""

    def serve(made: socket.socket) -> None:
        made.recv(1 << 16)
        made.sendall(data)
        made.shutdown(socket.SHUT_WR)
        made.recv(1 << 16)

    return serve


@pytest.mark.parametrize(
    ("limit_s", "serve", "says"),
    [
        (PATIENCE_S, lambda made: made.recv(1 << 16), "cannot be reached"),
        (0.5, lambda made: [*iter(lambda: made.recv(1 << 16), b"")], "did not answer in 0.5 s"),
        (0.5, drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100), "did not answer in 0.5 s"),
        (0.5, drip(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 100), "did not answer in 0.5 s"),
        (PATIENCE_S, saying(b"AMQP\0\0\x09\x01" * 99), "what is no HTTP"),
        (PATIENCE_S, saying(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 99_999), "what is no HTTP"),
    ],
)
def test_an_endpoint_that_is_slow_or_no_endpoint(
    monkeypatch: pytest.MonkeyPatch, limit_s: float, serve: Any, says: str
) -> None:
    monkeypatch.setattr(token_endpoint, "ANSWER_S_MAX", limit_s)
    given = {"oauthTokenEndpoint": raw_server(serve), "oauthClientId": CLIENT}
    with pytest.raises(WarrenSparkError, match=says) as told:
        request_token(client_of(**given, oauthClientSecret=SECRET))
    assert SECRET not in str(told.value)


def test_an_endpoint_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for host, scheme in (("127.0.0.1", "http"), ("host.invalid", "https"), ("a..b", "https")):
        given = {"oauthTokenEndpoint": f"{scheme}://{host}:{port}/t", "oauthClientId": CLIENT}
        with pytest.raises(BrokerUnavailableError, match=f"endpoint {host}:{port} cannot be reach"):
            request_token(client_of(**given, oauthClientSecret=SECRET))


def test_the_endpoint_s_certificate_is_checked(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    granted = Answer(200, {"access_token": TOKEN, "expires_in": 9})
    with TokenEndpoint(lambda _: granted, ours.issue("login")) as endpoint:
        given = endpoint.options(oauthCaFile=str(ours.cert))
        assert request_token(client_of(**given)) == (TOKEN, 9.0)
        for other in ({}, {"oauthCaFile": str(theirs.cert)}):
            given = endpoint.options(**other)
            with pytest.raises(TokenError, match="certificate of .* refused.*oauthCaFile"):
                request_token(client_of(**given))
        given = endpoint.options(oauthCaFile=str(tmp_path / "none"))
        with pytest.raises(OptionError, match="oauthCaFile, for token endpoint .*cannot read"):
            request_token(client_of(**given))
    assert len(endpoint.asked) == 1, "nothing was sent to an endpoint that is not the right one"


# ------------------------------------------------------------------ as a password


def test_the_token_is_the_password_of_each_connection(endpoint: TokenEndpoint) -> None:
    for more, user in (({}, CLIENT), ({"user": "u"}, "u"), ({"uri": "amqp://u@a"}, "u")):
        login = parameters(read(**endpoint.options(), **more))[0].credentials
        assert (login.username, login.password) == (user, TOKEN)
    assert len(endpoint.asked) == 1, "one token for all that log in as this client"
    parameters(read(**endpoint.options(oauthScope="other")))
    assert len(endpoint.asked) == 2


def test_an_endpoint_is_asked_until_the_request_timeout() -> None:
    answers = iter([Answer(503), Answer(503)])
    granted = Answer(200, {"access_token": TOKEN, "expires_in": 9})
    with TokenEndpoint(lambda _: next(answers, granted)) as endpoint:
        found = open_any(read(**endpoint.options()), "asking", lambda one: one.credentials.password)
        assert (found, len(endpoint.asked)) == (TOKEN, 3)
        endpoint.answer = lambda _: Answer(503)

        def attempt(limit_s: float) -> None:
            given = endpoint.options(oauthScope="other")
            options = read(**given, requestTimeout=f"{limit_s * 1000:.0f}ms")
            with pytest.raises(BrokerUnavailableError) as told:
                open_any(options, "asking", lambda one: None)
            if "answers 503" not in str(told.value):
                raise TooSlow(str(told.value))

        with_time_enough(attempt, 0.3)
        endpoint.answer = lambda _: Answer(401)
        asked = len(endpoint.asked)
        with pytest.raises(TokenError, match="answers 401"):
            open_any(read(**endpoint.options(oauthScope="other")), "asking", lambda one: None)
        assert len(endpoint.asked) == asked + 1, "a refusal is not asked for again"
