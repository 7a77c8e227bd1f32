"""The management UI's files, which are served as they are, to every client and without a login.

All of them are in memory, by path: a request names one of them or none. What the UI shows and does
it asks the HTTP API for, with the user's credentials.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from warren_broker.http.replies import NO_BODY, HttpRefusal, HttpReply

UI_FOLDER: Final = Path(__file__).with_name("ui")
UPLOT_FOLDER: Final = Path(__file__).with_name("uplot")
"""uPlot's files, which are not in the repository (tools/uplot.py)."""
UPLOT_MODULE: Final = "uPlot.esm.js"
NO_UPLOT: Final = b"export default null;\n"
"""The module where there is none: the UI then has no charts."""
FIRST_PAGE: Final = "index.html"
CONTENT_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
UI_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""No script or style but the UI's files, and no HTML made of texts."""
UI_HEADERS: Final = {
    "content-security-policy": UI_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
UI_METHODS: Final = "GET, HEAD, OPTIONS"


class UiFiles:
    """Answers requests for the files of the UI.

    prefix  the first page is at PREFIX/, all others are below PREFIX/ui/
    uplot   the folder of uPlot, below PREFIX/ui/uplot/; where it is missing, charts are, too
    """

    def __init__(self, prefix: str, folder: Path = UI_FOLDER, uplot: Path = UPLOT_FOLDER) -> None:
        """Read the files; raises OSError."""
        self._prefix = prefix
        self._replies: dict[str, HttpReply] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix in CONTENT_TYPES:
                place = "" if path.name == FIRST_PAGE else f"ui/{path.name}"
                self._replies[f"{prefix}/{place}"] = _file_reply(path.name, path.read_bytes())
        library = f"{prefix}/ui/uplot"
        self._replies[f"{library}/{UPLOT_MODULE}"] = _file_reply(UPLOT_MODULE, NO_UPLOT)
        for path in sorted(uplot.glob("*")):
            if path.suffix in CONTENT_TYPES:
                self._replies[f"{library}/{path.name}"] = _file_reply(path.name, path.read_bytes())

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(len(reply.body) for reply in self._replies.values())

    def reply(
        self, method: str, raw_path: bytes, headers: Mapping[bytes, bytes]
    ) -> HttpReply | None:
        """Return the answer, None for a path that is not the UI's; raises HttpRefusal."""
        path = raw_path.decode("latin-1")
        if path == self._prefix != "":
            found = HttpReply(301, NO_BODY, {**UI_HEADERS, "location": f"{path}/"})
        elif path in self._replies:
            found = self._replies[path]
        else:
            return None
        if method == "OPTIONS":
            return HttpReply(200, NO_BODY, {"allow": UI_METHODS})
        if method not in ("GET", "HEAD"):
            reason = f"{method} is not among {UI_METHODS}"
            raise HttpRefusal(405, "method_not_allowed", reason, {"allow": UI_METHODS})
        known = headers.get(b"if-none-match", b"").decode("latin-1")
        if found.status == 200 and found.headers["etag"] in known:
            kept = {key: value for key, value in found.headers.items() if key != "content-type"}
            return HttpReply(304, NO_BODY, kept)
        return found


def _file_reply(name: str, data: bytes) -> HttpReply:
    etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    named = {"content-type": CONTENT_TYPES[Path(name).suffix], "etag": etag}
    return HttpReply(200, data, {**UI_HEADERS, **named})
