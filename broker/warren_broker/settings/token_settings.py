"""The table `auth_oauth2` of a node's configuration; names are RabbitMQ's where it has them."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from warren_broker.settings.settings_table import SettingsTable

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures that are checked with a public key. Those of a shared secret are not among them: each
node would have what makes tokens."""


class KeyServerTls(SettingsTable):
    """How the server of `jwks_uri` is verified."""

    cacertfile: Path | None = Field(
        None, description="PEM file of its authorities; by default those of the system"
    )


class TokenSettings(SettingsTable):
    """Which tokens log in, and what they permit; without `resource_server_id` none does."""

    resource_server_id: str | None = Field(
        None, min_length=1, description="tokens log in that have it as audience (aud)"
    )
    scope_prefix: str | None = Field(
        None, description="of scopes; by default resource_server_id and a point"
    )
    signing_keys: dict[str, Path] = Field(
        default_factory=dict, description="PEM file of a public key, by its id (kid)"
    )
    jwks_file: Path | None = Field(
        None, description="a file with a JSON Web Key Set, as an issuer publishes it"
    )
    jwks_uri: str | None = Field(None, description="https URL of the issuer's JSON Web Key Set")
    https: KeyServerTls = KeyServerTls()
    default_key: str | None = Field(None, description="id of the key of tokens without one")
    algorithms: tuple[str, ...] = Field(ALGORITHMS, description="accepted signatures")
    issuer: str | None = Field(None, description="tokens must have it as issuer (iss)")
    verify_aud: bool = Field(True, description="false: tokens for any audience log in")
    preferred_username_claims: tuple[str, ...] = Field(
        (), description="claims with the user's name; by default sub and client_id"
    )
    additional_scopes_key: str | None = Field(
        None, description="claims that have scopes besides the claim scope: paths, with spaces"
    )
    scope_aliases: dict[str, str] = Field(
        default_factory=dict, description="scopes, with spaces between, by what tokens say for them"
    )

    @field_validator("algorithms")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [each for each in value if each not in ALGORITHMS]
        if unknown or not value:
            raise ValueError(
                f"algorithms={list(value)}: give some of {', '.join(ALGORITHMS)} (signatures with "
                "a shared secret are not accepted)"
            )
        return value

    @field_validator("jwks_uri")
    @classmethod
    def _https(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            whole = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
        except ValueError:
            whole = False
        if not whole or not value.isascii() or not value.isprintable() or " " in value:
            raise ValueError(f"jwks_uri={value!r}: give an https URL, as https://host/path")
        if "@" in urlsplit(value).netloc:
            raise ValueError("jwks_uri has a user or password, which is not sent: leave it out")
        return value

    @model_validator(mode="after")
    def _complete(self) -> TokenSettings:
        if self.resource_server_id is None:
            if self.model_fields_set:
                given = sorted(self.model_fields_set)[0]
                raise ValueError(f"{given} needs resource_server_id, this broker's name in tokens")
            return self
        if not self.signing_keys and self.jwks_file is None and self.jwks_uri is None:
            raise ValueError(
                "resource_server_id needs signing_keys, jwks_file or jwks_uri: the keys that "
                "tokens are checked with"
            )
        return self

    @property
    def prefix(self) -> str:
        """What a scope begins with."""
        if self.scope_prefix is not None:
            return self.scope_prefix
        return f"{self.resource_server_id}."
