"""Which tokens log in: signatures, keys, times, audience, names."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import run
from tests.live.conftest import STRICT
from tests.signing_key import SigningKey
from warren_broker.config import ConfigError, load
from warren_broker.settings.token_settings import TokenSettings
from warren_broker.tokens.token_check import TOKEN_BYTES_MAX, TokenChecker, TokenRefused, is_token
from warren_broker.tokens.token_keys import KEYS_MAX, KeysUnusable, key_set, keys_of_files

jwt: Any = __import__("jwt") if os.environ.get(STRICT) else pytest.importorskip("jwt")

NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1000


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey(tmp_path_factory.mktemp("key"))


def checker(key: SigningKey, **more: Any) -> TokenChecker:
    given = {"resource_server_id": "rabbitmq", "signing_keys": {"k1": key.public}, **more}
    settings = TokenSettings(**given)
    return TokenChecker(settings, keys_of_files(settings))


def token(key: SigningKey, **claims: Any) -> str:
    return key.token(**{"exp": NOW_S + 60, **claims})


def test_a_good_token_says_user_scopes_tags_and_its_end(key: SigningKey) -> None:
    scope = ["rabbitmq.read:*/*", "rabbitmq.tag:monitoring", "openid"]
    found = checker(key).check(token(key, scope=scope), NOW_MS)
    assert (found.user, found.tags, found.expires_ms) == ("spark", ("monitoring",), NOW_MS + 60_000)
    held = found.permissions("/")
    assert held is not None and held.allows("read", "q") and not held.allows("write", "q")


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"exp": NOW_S - 34}, "it has expired, 34 s ago"),
        ({"exp": NOW_S}, "it has expired, 0 s ago"),
        ({"exp": None}, "no time at which it expires"),
        ({"exp": "soon"}, "claim exp is no time"),
        ({"exp": True}, "claim exp is no time"),
        ({"exp": 10**30}, "claim exp is no time"),
        ({"nbf": NOW_S + 90}, "not valid before 90 s"),
        ({"aud": None}, "its audience"),
        ({"aud": "another"}, "its audience"),
        ({"aud": {"rabbitmq": 1}}, "its audience"),
        ({"aud": "rabbitmq-2 xrabbitmq"}, "its audience"),
        ({"aud": ["another rabbitmq"]}, "its audience"),
        ({"scope": [f"rabbitmq.s{i}" for i in range(2049)]}, "more than 2048 scopes"),
        ({"sub": "u" * 256}, "more than 255 bytes"),
        ({"sub": "a\nb"}, "cannot be printed"),
        ({"sub": "a\ud800"}, "cannot be printed"),
        ({"exp": float("nan")}, "claim exp is no time"),
    ],
)
def test_a_token_is_refused_with_its_reason(
    key: SigningKey, claims: dict[str, Any], says: str
) -> None:
    with pytest.raises(TokenRefused, match=says):
        checker(key).check(token(key, **claims), NOW_MS)


def test_signatures(key: SigningKey, tmp_path: Path) -> None:
    good = token(key)
    header, claims, signature = good.split(".")
    other = SigningKey(tmp_path)
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none","kid":"k1"}').decode().rstrip("=")
    # Signed with a shared secret, under the id of a public key.
    confused = jwt.encode({"exp": NOW_S}, "s" * 32, "HS256", headers={"kid": "k1"})
    deep = base64.urlsafe_b64encode(b"[" * 40_000).decode().rstrip("=")
    for bad in (
        token(other),
        f"{header}.{claims[:-2]}AA.{signature}",
        f"{header}.{claims}.{signature[:-4]}AAAA",
        f"{unsigned}.{claims}.",
        f"{unsigned}.{claims}.{signature}",
        confused,
        f"{header}.{deep}.{signature}",
        f"{deep}.{claims}.{signature}",
        "eyJ.e.e",
        "eyJ" + "e" * TOKEN_BYTES_MAX + ".e.e",
        "",
    ):
        with pytest.raises(TokenRefused) as told:
            checker(key).check(bad, NOW_MS)
        assert "eyJ" not in str(told.value)
    with pytest.raises(TokenRefused, match="no key has its id"):
        checker(key).check(token(key, key_id="k2"), NOW_MS)
    with pytest.raises(TokenRefused, match="not among the accepted"):
        checker(key, algorithms=("ES256",)).check(good, NOW_MS)
    assert checker(key, default_key="k1").check(token(key, key_id=""), NOW_MS).user == "spark"


def test_a_key_set_and_an_elliptic_curve(tmp_path: Path, key: SigningKey) -> None:
    run("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", tmp_path / "ec.key")
    private = (tmp_path / "ec.key").read_text()
    run("ec", "-in", tmp_path / "ec.key", "-pubout", "-out", tmp_path / "ec.pem")
    public = json.loads(
        jwt.algorithms.ECAlgorithm.to_jwk(
            jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).prepare_key(
                (tmp_path / "ec.pem").read_text()
            )
        )
    )
    file = tmp_path / "jwks.json"
    secret = {
        "kty": "oct",
        "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
        "kid": "shared",
        "alg": "HS256",
    }
    file.write_text(json.dumps({"keys": [{**public, "kid": "e1", "alg": "ES256"}, secret]}))
    check = checker(key, jwks_file=file).check
    claims = {"exp": NOW_S + 9, "aud": "rabbitmq", "sub": "ec"}
    made = jwt.encode(claims, private, "ES256", headers={"kid": "e1"})
    assert check(made, NOW_MS).user == "ec" and check(token(key), NOW_MS).user == "spark"
    shared = jwt.encode(claims, "secret" * 6, "HS256", headers={"kid": "shared"})
    with pytest.raises(TokenRefused, match="no key has its id"):
        check(shared, NOW_MS)


def rsa(key: SigningKey, **more: Any) -> dict[str, Any]:
    """Return the key for a key set."""
    prepared = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).prepare_key(
        key.public.read_text()
    )
    made: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(prepared))
    return {**made, "kid": "k1", **more}


def of_set(key: SigningKey, tmp_path: Path, *keys: Any, **more: Any) -> TokenChecker:
    file = tmp_path / "set.json"
    file.write_text(json.dumps({"keys": list(keys)}))
    return checker(key, signing_keys={}, jwks_file=file, **more)


def signed(key: SigningKey, algorithm: str) -> str:
    claims = {"exp": NOW_S + 9, "aud": "rabbitmq", "sub": "s"}
    made: str = jwt.encode(claims, key.private.read_text(), algorithm, headers={"kid": "k1"})
    return made


def test_a_key_that_says_its_algorithm_is_for_no_other(key: SigningKey, tmp_path: Path) -> None:
    """PyJWT compares the token's algorithm with the accepted, and verifies by the key's."""
    check = of_set(key, tmp_path, rsa(key, alg="RS512")).check
    assert check(signed(key, "RS512"), NOW_MS).user == "s"
    for other in ("RS256", "PS512"):
        with pytest.raises(TokenRefused, match="not that of its key"):
            check(signed(key, other), NOW_MS)
    check = of_set(
        key, tmp_path, rsa(key, alg=None) | {"alg": "RS512"}, algorithms=("PS256",)
    ).check
    with pytest.raises(TokenRefused, match="not among the accepted"):
        check(signed(key, "RS512"), NOW_MS)
    bare = rsa(key)
    bare.pop("alg", None)
    check = of_set(key, tmp_path, bare).check
    for algorithm in ("RS256", "RS512", "PS256"):
        assert check(signed(key, algorithm), NOW_MS).user == "s"
    forged = jwt.encode({"exp": NOW_S + 9}, "s" * 64, "HS256", headers={"kid": "k1"})
    with pytest.raises(TokenRefused, match="not among the accepted"):
        check(forged, NOW_MS)


@pytest.mark.parametrize(
    "odd",
    [
        7,
        {},
        {"kty": "RSA"},
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": "RSA", "n": "AQ", "e": "AQ"},
        {"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"},
        {"kty": "EC", "crv": [], "x": "AQ", "y": "AQ"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AQ"},
        {"kty": "RSA", "alg": "none", "n": "AQ", "e": "AQ"},
        {"kty": "RSA", "alg": {}, "n": "AQ", "e": "AQ"},
        {"kty": ["RSA"], "kid": "a"},
        {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "b"},
        {"kty": "quantum", "kid": "c"},
    ],
)
def test_odd_keys_of_a_set_are_passed_over(key: SigningKey, odd: Any) -> None:
    good = rsa(key)
    private = json.loads(
        jwt.algorithms.RSAAlgorithm.to_jwk(
            jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).prepare_key(
                key.private.read_text()
            )
        )
    )
    others = [odd, {**good, "use": "enc", "kid": "e"}, {**private, "kid": "p"}]
    data = json.dumps({"keys": [*others, {**good, "kid": 9}, good]}).encode()
    assert list(key_set(data, "here")) == ["k1"]
    with pytest.raises(KeysUnusable, match="here has no public key"):
        key_set(json.dumps({"keys": others}).encode(), "here")


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b'"keys"', b'{"keys": {}}', b"\xff", b"[" * 100_000, b"1" * 9_999],
)
def test_what_is_no_key_set(data: bytes) -> None:
    with pytest.raises(KeysUnusable, match="here is no JSON Web Key Set"):
        key_set(data, "here")


def test_a_key_set_is_bounded(key: SigningKey) -> None:
    many = {"keys": [rsa(key, kid=str(i)) for i in range(KEYS_MAX + 1)]}
    with pytest.raises(KeysUnusable, match="has 101 keys; 100 is the limit"):
        key_set(json.dumps(many).encode(), "here")


def test_names_scopes_issuer_and_audience_as_configured(key: SigningKey) -> None:
    check = checker(
        key,
        preferred_username_claims=("user_name",),
        additional_scopes_key="roles",
        scope_prefix="mq:",
        scope_aliases={"reader": "mq:read:*/q mq:read:*/p"},
        issuer="https://login.example.com",
        verify_aud=False,
    ).check
    given = {"iss": "https://login.example.com", "aud": None, "scope": "reader rabbitmq.write:*/*"}
    found = check(token(key, **given, user_name="fred", roles="mq:configure:*/*"), NOW_MS)
    held = found.permissions("/")
    assert found.user == "fred" and held is not None
    assert held.allows("read", "p") and held.allows("configure", "x")
    assert not held.allows("write", "x")
    assert check(token(key, **given), NOW_MS).user == "unknown"
    with pytest.raises(TokenRefused, match="its issuer"):
        check(token(key, **{**given, "iss": "https://login.example.com/"}), NOW_MS)


def test_further_scopes_are_found_on_paths(key: SigningKey) -> None:
    """As in RabbitMQ: several paths, through objects and lists; an object says them by broker."""
    check = checker(key, additional_scopes_key="a.b roles x.y", scope_prefix="rabbitmq.").check
    claims: dict[str, Any] = {
        "scope": None,
        "a": [{"b": "rabbitmq.read:*/1 other"}, 7, {"b": ["rabbitmq.read:*/2 3"]}, {"c": "x"}],
        "roles": {"rabbitmq": ["write:*/w"], "another": ["write:*/*"]},
        "x": "rabbitmq.configure:*/*",
    }
    found = check(token(key, **claims), NOW_MS)
    held = found.permissions("/")
    assert held is not None and len(found.scopes) == 3
    assert held.allows("read", "1") and held.allows("read", "2 3") and held.allows("write", "w")
    assert not held.allows("read", "2") and not held.allows("configure", "x")
    assert not held.allows("write", "x")


def test_a_scope_in_a_list_may_have_spaces(key: SigningKey) -> None:
    """It is one scope: its first word would permit another queue."""
    scope = ["rabbitmq.read:*/my queue", "rabbitmq.write:*/a\tb"]
    held = checker(key).check(token(key, scope=scope), NOW_MS).permissions("/")
    assert held is not None and held.allows("read", "my queue") and not held.allows("read", "my")
    assert not held.allows("write", "a")
    held = checker(key).check(token(key, scope=" ".join(scope)), NOW_MS).permissions("/")
    assert held is not None and held.allows("read", "my")


def test_an_audience_may_be_one_text_with_spaces(key: SigningKey) -> None:
    assert checker(key).check(token(key, aud="another rabbitmq"), NOW_MS).user == "spark"


def test_what_looks_like_a_token(key: SigningKey) -> None:
    assert is_token(key.token())
    for other in (
        "guest",
        "",
        "eyJ",
        "a.b.c",
        "eyJh.b",
        f"{key.token()} ",
        "eyJh.b.c.d",
        "eyJh.ü.c",
    ):
        assert not is_token(other)


# ------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"verify_aud": "false"}, "verify_aud needs resource_server_id"),
        ({"resource_server_id": "r"}, "needs signing_keys, jwks_file or jwks_uri"),
        ({"resource_server_id": "r", "algorithms": ["HS256"]}, "a shared secret are not accepted"),
        ({"resource_server_id": "r", "algorithms": ["none"]}, "give some of RS256"),
        ({"resource_server_id": "r", "jwks_url": "https://a"}, "jwks_url"),
        ({"resource_server_id": "r", "jwks_uri": "http://a/keys"}, "give an https URL"),
        ({"resource_server_id": "r", "jwks_uri": "file:///etc/keys"}, "give an https URL"),
        ({"resource_server_id": "r", "jwks_uri": "https://"}, "give an https URL"),
        ({"resource_server_id": "r", "jwks_uri": "https://a:x/"}, "give an https URL"),
        ({"resource_server_id": "r", "jwks_uri": "https://a/\nb"}, "give an https URL"),
        ({"resource_server_id": "r", "jwks_uri": "https://me:pw@a/"}, "user or password"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    file = tmp_path / "warren.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in given.items()]
    file.write_text("[auth_oauth2]\n" + "\n".join(lines))
    with pytest.raises(ConfigError, match=says):
        load(file, {})


def test_keys_that_cannot_be_used_are_named(tmp_path: Path, key: SigningKey) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    for more, says in (
        ({"signing_keys": {"k1": tmp_path / "none"}}, "signing_keys.k1=.*cannot be read: No such"),
        ({"signing_keys": {"k1": wrong}}, "signing_keys.k1=.*no public key in PEM"),
        ({"signing_keys": {"k1": key.private}}, "no public key in PEM"),
        ({"jwks_file": wrong}, "jwks_file=.*is no JSON Web Key Set"),
        ({"default_key": "k2"}, "default_key='k2' is no key; there are 'k1'"),
    ):
        with pytest.raises(KeysUnusable, match=says):
            checker(key, **more)
