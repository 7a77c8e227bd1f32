"""The user that a client's certificate names, for SASL EXTERNAL.

The settings, and what is taken from a certificate, are RabbitMQ's. The certificate has been
verified by TLS; it is decoded as Python's `ssl` does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

From: TypeAlias = Literal["distinguished_name", "common_name", "subject_alternative_name"]
SanType: TypeAlias = Literal["dns", "ip", "email", "uri"]

EXTERNAL: Final = "EXTERNAL"
"""The SASL mechanism."""

_SAN_KEYS: Final = {"dns": "DNS", "ip": "IP Address", "email": "email", "uri": "URI"}
_ATTRIBUTES: Final = {
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "TITLE",
    "countryName": "C",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""OpenSSL's name of an attribute to its name in a distinguished name, as RabbitMQ writes it."""
_ESCAPED: Final = frozenset(b'"+,;<>\\')


class CertificateLogin(msgspec.Struct, frozen=True):
    """Where in a certificate the user's name is.

    source     the whole subject (RFC 4514), its common names, or a subject alternative name
    san_type   with subject_alternative_name: the kind of name
    san_index  which of that kind, from 0
    """

    source: From
    san_type: SanType = "dns"
    san_index: int = 0


def login_name(certificate: Mapping[str, Any], login: CertificateLogin) -> str:
    """Return the user's name; "": the certificate has none, no client may log in with it.

    A name is compared as a whole: one with a NUL byte in it is not the name before that byte.
    """
    if login.source == "subject_alternative_name":
        key = _SAN_KEYS[login.san_type]
        names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == key]
        return names[login.san_index] if login.san_index < len(names) else ""
    subject = certificate.get("subject", ())
    if login.source == "common_name":
        return ",".join(
            str(value) for names in subject for kind, value in names if kind == "commonName"
        )
    return distinguished_name(subject)


def distinguished_name(name: Sequence[Any]) -> str:
    """Return a subject or an issuer as one text (RFC 4514)."""
    return ",".join("+".join(_attribute(*one) for one in names) for names in reversed(name))


def _attribute(kind: str, value: str) -> str:
    return f"{_ATTRIBUTES.get(kind, kind)}={_escaped(value)}"


def _escaped(value: str) -> str:
    """Escape a value as RFC 4514 asks for, and everything that is not printable ASCII."""
    data = value.encode("utf-8", "surrogatepass")
    made = []
    for at, byte in enumerate(data):
        edge = (at == 0 and byte in b" #") or (at == len(data) - 1 and byte in b" ")
        if edge or byte in _ESCAPED:
            made.append(f"\\{chr(byte)}")
        elif 32 <= byte < 126:
            made.append(chr(byte))
        else:
            made.append(f"\\{byte:02X}")
    return "".join(made)
