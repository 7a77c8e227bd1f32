"""What would keep a node from starting, found without starting it: `warren-broker check`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import Final

from warren_broker.broker.boot_definitions import DefinitionsUnusable, read_definitions
from warren_broker.config import NodeConfig, parse_address
from warren_broker.tokens.token_keys import KeysUnusable, keys_of_files
from warren_raft.storage.errors import DirectoryRefused
from warren_raft.storage.files import Files
from warren_raft.storage.identity import examine_directory
from warren_wire.tls.contexts import CertificatesUnusable, peer_context, server_context

_UNUSABLE: Final = (CertificatesUnusable, DefinitionsUnusable, DirectoryRefused, KeysUnusable)


def check(settings: NodeConfig) -> tuple[list[str], list[str]]:
    """Return what keeps a node with these settings from starting, and what only may.

    Reads the files that they name. Opens no port, and changes nothing: the node may be running.
    """
    problems = [problem for one in _CHECKS for problem in _found(one, settings)]
    return problems, list(_addresses(settings))


def _found(one: Callable[[NodeConfig], None], settings: NodeConfig) -> Iterator[str]:
    try:
        one(settings)
    except _UNUSABLE as error:
        yield str(error)
    except OSError as error:
        yield f"{error.filename}: {error.strerror}"


def _certificates(settings: NodeConfig) -> None:
    files = settings.tls.files()
    if files is not None:
        server_context(files)
        if settings.tls.between_nodes:
            peer_context(files)


def _api_certificates(settings: NodeConfig) -> None:
    if settings.management.enabled and settings.management.ssl is not None:
        server_context(settings.management.ssl.files())


def _token_keys(settings: NodeConfig) -> None:
    if settings.auth_oauth2.resource_server_id is not None:
        keys_of_files(settings.auth_oauth2)


def _definitions(settings: NodeConfig) -> None:
    if settings.definitions_path is not None:
        read_definitions(settings.definitions_path)


def _directory(settings: NodeConfig) -> None:
    path = settings.data_dir
    there = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(0, "this user may not write there", str(there))
    examine_directory(Files(), path, settings.cluster, settings.node)


_CHECKS: Final = (_certificates, _api_certificates, _token_keys, _definitions, _directory)


def _addresses(settings: NodeConfig) -> Iterator[str]:
    """Yield the peers with an unknown host: it may be known before the node starts."""
    for name, address in sorted(settings.peers.items()):
        host, port = parse_address(address)
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            yield f"peers.{name}={address!r}: {error.strerror}; it is looked up again for each call"
