"""Collectors of OpenTelemetry for tests: a real one, built of Go modules, and a receiver beside it.

Both hand out requests of OTLP in its own protobuf. The real one takes minutes to build at first, in
`.warren/otel`.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import subprocess
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from live.conftest import STRICT, eventually
from tools.environment import STATE
from warren.ports import ReservedPorts

TOKEN: Final = "Bearer for-the-collector"
MODULES: Final = {
    "github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter": "v0.161.0",
    "go.opentelemetry.io/collector/confmap/provider/fileprovider": "v1.71.0",
    "go.opentelemetry.io/collector/otelcol": "v0.161.0",
    "go.opentelemetry.io/collector/receiver/otlpreceiver": "v0.161.0",
}
_PROGRAM: Final = Path(__file__).parent / "collector/main.go"
_PLACE: Final = STATE / "otel"
_SIZE: Final = struct.Struct(">I")


class Seen(NamedTuple):
    """A span, and the node that recorded it."""

    node: str
    span: Any

    @property
    def trace(self) -> str:
        """Its trace-id."""
        return str(self.span.trace_id.hex())

    @property
    def facts(self) -> dict[str, Any]:
        """Its attributes."""
        return {
            one.key: getattr(one.value, one.value.WhichOneof("value"))
            for one in self.span.attributes
        }


class Taken:
    """What was taken: requests as they came."""

    port: int

    def requests(self, path: str) -> list[bytes]:
        """Bodies of the requests for `/v1/traces` or `/v1/metrics`, in order."""
        raise NotImplementedError

    def spans(self) -> list[Seen]:
        """All spans."""
        found = []
        for body in self.requests("/v1/traces"):
            for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                of = {one.key: one.value.string_value for one in each.resource.attributes}
                spans = [span for scope in each.scope_spans for span in scope.spans]
                found += [Seen(of["service.instance.id"], span) for span in spans]
        return found

    def metrics(self) -> list[Any]:
        """All readings of the metrics."""
        bodies = self.requests("/v1/metrics")
        return [ExportMetricsServiceRequest.FromString(body).resource_metrics[0] for body in bodies]

    def close(self) -> None:
        """End it."""
        raise NotImplementedError


class Receiver(Taken):
    """Takes requests with the right token, in this process."""

    def __init__(self, port: int = 0) -> None:
        self.taken: list[tuple[str, bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                right = self.headers["Authorization"] == TOKEN
                if right and self.headers["Content-Type"] == "application/x-protobuf":
                    receiver.taken.append((self.path, gzip.decompress(body)))
                self.send_response(200 if right else 401)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def requests(self, path: str) -> list[bytes]:
        """See `Taken`."""
        return [body for where, body in self.taken if where == path]

    def close(self) -> None:
        """See `Taken`."""
        self._server.shutdown()
        self._server.server_close()


class Collector(Taken):
    """A collector of OpenTelemetry, which writes what it takes to files."""

    def __init__(self, place: Path) -> None:
        program = built()
        place.mkdir(parents=True)
        self._files = {f"/v1/{what}": place / f"{what}.bin" for what in ("traces", "metrics")}
        self._ports = ReservedPorts()
        self.port = self._ports.take()
        http = {"endpoint": f"127.0.0.1:{self.port}"}
        exporters = {
            f"file/{path.stem}": {"path": str(path), "format": "proto", "flush_interval": "100ms"}
            for path in self._files.values()
        }
        pipelines = {
            path.stem: {"receivers": ["otlp"], "exporters": [f"file/{path.stem}"]}
            for path in self._files.values()
        }
        config = {
            "receivers": {"otlp": {"protocols": {"http": http}}},
            "exporters": exporters,
            "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": pipelines},
        }
        (place / "config.yaml").write_text(json.dumps(config))
        command = [program, "--config", f"file:{place / 'config.yaml'}"]
        with (place / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(self._listens, "the collector listens")

    def _listens(self) -> bool:
        assert self._process.poll() is None, "it has ended; see its log"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/traces", timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code == 405
        except OSError:
            return False
        return False

    def requests(self, path: str) -> list[bytes]:
        """See `Taken`; as the collector has encoded them again."""
        file = self._files[path]
        data, found = file.read_bytes() if file.exists() else b"", []
        while len(data) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(data)[0]
            if end > len(data):
                break
            found.append(data[_SIZE.size : end])
            data = data[end:]
        return found

    def close(self) -> None:
        """See `Taken`."""
        self._process.terminate()
        self._process.wait()


def built() -> Path:
    """Return the program of the collector, built if needed; skip the test where it cannot be."""
    source, program = _PROGRAM.read_text(encoding="utf-8"), _PLACE / "collector"
    stamp, wanted = _PLACE / "stamp", repr((MODULES, source))
    if program.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return program
    _PLACE.mkdir(parents=True, exist_ok=True)
    required = "".join(f"require {name} {version}\n" for name, version in MODULES.items())
    (_PLACE / "go.mod").write_text(f"module collector\n\ngo 1.25\n\n{required}", encoding="utf-8")
    (_PLACE / "main.go").write_text(source, encoding="utf-8")
    said = "Go is missing: apt-get install golang"
    if shutil.which("go") is not None:
        command = ["go", "build", "-mod=mod", "-buildvcs=false", "-o", str(program), "."]
        done = subprocess.run(command, cwd=_PLACE, capture_output=True, text=True, check=False)
        if not done.returncode:
            stamp.write_text(wanted, encoding="utf-8")
            return program
        said = f"Go cannot build it: {done.stderr[-500:]}"
    if os.environ.get(STRICT):
        pytest.fail(f"{STRICT} is set, and there is no collector: {said}")
    pytest.skip(said)
