"""The user that a certificate names."""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.live.conftest import STRICT
from warren_wire.certificate_login import CertificateLogin, login_name

COMMON = CertificateLogin("common_name")
WHOLE = CertificateLogin("distinguished_name")


def subject(*names: tuple[str, str]) -> dict[str, Any]:
    return {"subject": tuple((name,) for name in names)}


def san(kind: Any, index: int = 0) -> CertificateLogin:
    return CertificateLogin("subject_alternative_name", kind, index)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((("commonName", "ann"),), "ann"),
        ((("organizationName", "o"), ("commonName", "ann b")), "ann b"),
        ((("commonName", "a"), ("commonName", "b")), "a,b"),
        ((("commonName", ""),), ""),
        ((("organizationName", "o"),), ""),
        ((), ""),
        ((("commonName", "guest\0.evil"),), "guest\0.evil"),
        ((("commonName", "jürgen/ñ"),), "jürgen/ñ"),
    ],
)
def test_common_names(names: Any, expected: str) -> None:
    assert login_name(subject(*names), COMMON) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            (("countryName", "DE"), ("organizationName", "o"), ("commonName", "ann")),
            "CN=ann,O=o,C=DE",
        ),
        ((("commonName", 'a,b+c"d\\e<f>g;h'),), 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h'),
        ((("commonName", " lead"),), "CN=\\ lead"),
        ((("commonName", "#hash# "),), "CN=\\#hash#\\ "),
        ((("commonName", "ü\0~"),), "CN=\\C3\\BC\\00\\7E"),
        ((("2.5.4.17", "10115"), ("userId", "u")), "UID=u,2.5.4.17=10115"),
        ((), ""),
    ],
)
def test_distinguished_names_are_written_as_rabbitmq_does(names: Any, expected: str) -> None:
    assert login_name(subject(*names), WHOLE) == expected


def test_a_name_of_several_parts_is_joined_with_plus() -> None:
    several = {"subject": ((("commonName", "a"), ("userId", "u")), (("organizationName", "o"),))}
    assert login_name(several, WHOLE) == "O=o,CN=a+UID=u"
    assert login_name(several, COMMON) == "a"


def test_alternative_names_by_kind_and_index() -> None:
    names = (
        ("DNS", "one.example"),
        ("email", "ann@example"),
        ("DNS", "two.example"),
        ("IP Address", "10.0.0.7"),
        ("URI", "spiffe://x/y"),
    )
    given = {**subject(("commonName", "other")), "subjectAltName": names}
    assert login_name(given, san("dns")) == "one.example"
    assert login_name(given, san("dns", 1)) == "two.example"
    assert login_name(given, san("dns", 2)) == "", "the common name is not taken instead"
    assert login_name(given, san("email")) == "ann@example"
    assert login_name(given, san("ip")) == "10.0.0.7"
    assert login_name(given, san("uri")) == "spiffe://x/y"
    assert login_name(subject(("commonName", "x")), san("dns")) == ""


@pytest.mark.skipif(
    shutil.which("openssl") is None and STRICT not in os.environ, reason="needs openssl"
)
def test_names_of_a_certificate_as_python_decodes_it(tmp_path: Path) -> None:
    made = Authority(tmp_path).issue("ann", san="DNS:a.example,email:ann@example,IP:10.0.0.1")
    decode = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]
    decoded: dict[str, Any] = decode(str(made.cert))
    assert login_name(decoded, COMMON) == "ann" and login_name(decoded, WHOLE) == "CN=ann"
    assert login_name(decoded, san("email")) == "ann@example"
    assert login_name(decoded, san("ip")) == "10.0.0.1"
