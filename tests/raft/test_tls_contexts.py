"""TLS is the same with every Python, however it was compiled: ciphers, and no resumption."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates import Authority

ROOT = Path(__file__).parents[2]
PROGRAM = r"""
import json, socket, ssl, sys, threading
from warren_wire.tls.contexts import client_side, server_side

cert, key, authority = sys.argv[1:]
made = server_side()
made.load_cert_chain(cert, key)
listener = socket.create_server(("127.0.0.1", 0))


def serve():
    while True:
        plain, _ = listener.accept()
        try:
            with made.wrap_socket(plain, server_side=True) as wrapped:
                wrapped.sendall(b"x")
                wrapped.recv(1)
                wrapped.unwrap()
        except OSError:
            plain.close()


def call(context, session=None):
    plain = socket.create_connection(listener.getsockname())
    wrapped = context.wrap_socket(plain, server_hostname="localhost", session=session)
    wrapped.recv(1)
    found = wrapped.session_reused, wrapped.session
    wrapped.sendall(b"y")
    wrapped.unwrap().close()
    return found


threading.Thread(target=serve, daemon=True).start()
resumed = []
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority)
    context.minimum_version = context.maximum_version = version
    _, session = call(context)
    again, _ = call(context, session)
    resumed.append(again)
accepted = []
for cipher in ("AES128-SHA", "AES256-GCM-SHA384", "AES128-SHA256", "ECDHE-RSA-AES128-SHA"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher + ":@SECLEVEL=0")
    try:
        call(context)
        accepted.append(cipher)
    except ssl.SSLError:
        pass
told = {"resumed": resumed, "accepted": accepted, "hits": made.session_stats()["hits"]}
for name, side in (("server", server_side()), ("client", client_side())):
    told[name] = [
        one["name"] for one in side.get_ciphers() if not one["name"].startswith("TLS_")
    ]
    told[name + " from"] = side.minimum_version.name
told["checks"] = [client_side().verify_mode, client_side(checks=False).verify_mode]
print(json.dumps(told))
"""


def pythons() -> list[str]:
    """This one, the distribution's, and pyenv's, of the versions that Warren supports."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [Path(f"/usr/bin/python3.{minor}") for minor in range(11, 15)]
    found += [one / "bin" / "python3" for one in sorted(pyenv.glob("3.1[1-9].*"))]
    return list(dict.fromkeys([sys.executable, *(str(one) for one in found if one.exists())]))


@pytest.mark.parametrize("python", pythons())
def test_ciphers_have_forward_secrecy_and_no_session_is_resumed(
    python: str, tmp_path: Path
) -> None:
    """Debian's Python took AES128-SHA, and every Python resumed sessions of TLS 1.2."""
    authority = Authority(tmp_path)
    made = authority.issue("localhost")
    run = subprocess.run(
        [python, "-c", PROGRAM, str(made.cert), str(made.key), str(authority.cert)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "broker")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["resumed"] == [False, False] and told["hits"] == 0
    assert told["accepted"] == []
    for side in ("server", "client"):
        assert told[side] and all(name.startswith(("ECDHE-", "DHE-")) for name in told[side])
        assert not any(name.endswith(("-SHA", "CCM", "CCM8")) for name in told[side])
        assert told[f"{side} from"] == "TLSv1_2"
    assert told["checks"] == [2, 0]
