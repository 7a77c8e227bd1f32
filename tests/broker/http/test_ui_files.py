"""The management UI's files: how they are served, and what they may not contain."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from broker.http.test_application import PlayedNode, job
from tests.patience import PATIENCE_S
from tidy.test_size import LINE_CHARACTERS_MAX, MODULE_LINES_MAX
from tools.structure import ROOT
from warren_broker.http.application import HttpApplication
from warren_broker.http.ui_files import (
    CONTENT_TYPES,
    NO_UPLOT,
    UI_FOLDER,
    UPLOT_FOLDER,
    UPLOT_MODULE,
    UiFiles,
)

UI_BYTES_MAX = 192 << 10
FILES = sorted(UI_FOLDER.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
HTML_OF_TEXTS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
    r"|\beval\(|new Function|srcdoc|javascript:"
)


def answer(
    path: str, method: str = "GET", headers: dict[bytes, bytes] | None = None, **settings: Any
) -> tuple[int, dict[str, str], bytes, PlayedNode]:
    """Status, headers and body of an answer to a request without credentials; the node."""
    node, sent = PlayedNode(), []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "raw_path": path.encode("latin-1"),
        "query_string": b"",
        "client": ("10.0.0.9", 4711),
        "headers": list((headers or {}).items()),
    }
    app = HttpApplication(node, job(**settings))  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(app(scope, receive, send), PATIENCE_S))
    named = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return sent[0]["status"], named, sent[1]["body"], node


# ------------------------------------------------------------------ how they are served


def test_every_file_is_served_without_a_login_and_with_headers_that_protect_the_page() -> None:
    for path in FILES:
        place = "/" if path.name == "index.html" else f"/ui/{path.name}"
        status, headers, body, node = answer(place)
        assert (status, body) == (200, path.read_bytes()), place
        assert node.asked == []
        assert headers["content-type"] == CONTENT_TYPES[path.suffix]
        assert headers["content-length"] == str(len(body))
        policy = headers["content-security-policy"].split("; ")
        assert {"default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy)
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-cache", "asked for with its ETag each time"


def test_without_a_login_nothing_but_the_files_is_told() -> None:
    for path in ("/api/overview", "/api/whoami", "/api/queues"):
        status, _, _, node = answer(path)
        assert status == 401 and node.asked == []


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    _, headers, body, _ = answer("/ui/main.js")
    known = {b"if-none-match": headers["etag"].encode()}
    status, again, none, _ = answer("/ui/main.js", headers=known)
    assert (status, none, again["etag"]) == (304, b"", headers["etag"])
    assert "content-length" not in again and "content-security-policy" in again
    status, other, _, _ = answer("/ui/dom.js", headers=known)
    assert status == 200 and other["etag"] != headers["etag"]
    assert answer("/ui/main.js", headers={b"if-none-match": b'"old"'})[2] == body
    weak = {b"if-none-match": b'"x", W/' + headers["etag"].encode()}
    assert answer("/ui/main.js", headers=weak)[0] == 304


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../application.py",
        "/ui/..%2fapplication.py",
        "/ui/%2e%2e/settings.py",
        "/ui/../../../../etc/passwd",
        "/ui//etc/passwd",
        "//ui/main.js",
        "/ui/main.js/",
        "/ui/main.js\x00.css",
        "/ui/main.js%00",
        "/ui/MAIN.JS",
        "/ui/",
        "/ui",
        "/main.js",
        "/index.html",
        "/ui/index.html",
        "/ui\\main.js",
        "/favicon.ico",
        "/\xff",
        "",
    ],
)
def test_no_other_path_names_a_file(path: str) -> None:
    status, headers, body, _ = answer(path)
    assert status == 404 and b"Object Not Found" in body
    assert headers["content-type"] == "application/json"


def test_heads_and_other_methods() -> None:
    status, headers, _, _ = answer("/", "HEAD")  # uvicorn leaves the body out
    assert (status, headers["content-length"]) == (200, answer("/")[1]["content-length"])
    assert answer("/", "OPTIONS")[1]["allow"] == "GET, HEAD, OPTIONS"
    for method in ("POST", "PUT", "DELETE", "TRACE"):
        status, headers, _, _ = answer("/ui/main.js", method)
        assert (status, headers["allow"]) == (405, "GET, HEAD, OPTIONS"), method


def test_below_a_prefix_and_switched_off() -> None:
    prefix = {"path_prefix": "/rabbit"}
    assert answer("/rabbit/", **prefix)[0] == answer("/rabbit/ui/main.js", **prefix)[0] == 200
    status, headers, _, _ = answer("/rabbit", **prefix)
    assert (status, headers["location"]) == (301, "/rabbit/")
    for path in ("/", "/ui/main.js", "/rabbit/main.js"):
        assert answer(path, **prefix)[0] == 404
    for path in ("/", "/ui/main.js"):
        assert answer(path, ui=False)[0] == 404
    assert answer("/api/whoami", ui=False)[0] == 401


def test_uplot_is_served_below_the_files_or_a_module_without_it(tmp_path: Path) -> None:
    def served(files: UiFiles, name: str) -> bytes | None:
        reply = files.reply("GET", f"/p/ui/uplot/{name}".encode(), {})
        return None if reply is None else reply.body  # type: ignore[no-any-return]

    without = UiFiles("/p", uplot=tmp_path / "none")
    assert served(without, UPLOT_MODULE) == b"export default null;\n"
    assert served(without, "uPlot.min.css") is None
    for name in (UPLOT_MODULE, "uPlot.min.css", "LICENSE"):
        (tmp_path / name).write_text(name)
    files = UiFiles("/p", uplot=tmp_path)
    assert served(files, UPLOT_MODULE) == UPLOT_MODULE.encode()
    assert served(files, "uPlot.min.css") == b"uPlot.min.css"
    assert served(files, "LICENSE") is None, "it is for those that read the package"


# ------------------------------------------------------------------ what is in them


def test_the_files_are_few_and_in_the_wheel() -> None:
    own = sum(path.stat().st_size for path in FILES)
    assert UiFiles("", uplot=ROOT / "none").size - len(NO_UPLOT) == own < UI_BYTES_MAX
    assert {path.suffix for path in FILES} <= set(CONTENT_TYPES), "no other file is served"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed = project["tool"]["setuptools"]["package-data"]["warren_broker.http"]
    found = {path for pattern in packed for path in UI_FOLDER.parent.glob(pattern)}
    assert found == {*FILES, *UPLOT_FOLDER.glob("*")}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_makes_no_html_of_texts_and_loads_nothing_of_others(path: Path) -> None:
    text = path.read_text()
    assert not HTML_OF_TEXTS.findall(text)
    assert "style" not in re.findall(r"\b(\w+): *`", text), "no inline styles"
    assert text.startswith("// "), "it says what it is"
    lines = text.splitlines()
    assert len(lines) <= MODULE_LINES_MAX
    assert max(map(len, lines)) <= LINE_CHARACTERS_MAX
    for imported in re.findall(r'from "([^"]+)"', text):
        assert (UI_FOLDER / imported).is_file() or imported == f"./uplot/{UPLOT_MODULE}", imported
    names = r"amqps?://|http://www\.w3\.org/2000/svg"
    assert "://" not in re.sub(names, "", text), "no address of another server"


def test_the_first_page_has_neither_scripts_nor_styles_in_it() -> None:
    text = (UI_FOLDER / "index.html").read_text()
    assert not re.findall(r"\bon\w+=|style=|<style|<script>|//", text)
    named = re.findall(r'(?:src|href)="ui/([^"]+)"', text)
    assert all((UI_FOLDER / name).is_file() for name in named) and len(named) == 3


def test_requests_are_sent_in_one_place_and_never_with_the_browsers_own_credentials() -> None:
    sending = [path.name for path in SCRIPTS if re.search(r"\bfetch\(", path.read_text())]
    assert sending == ["api.js"]
    assert 'credentials: "omit"' in (UI_FOLDER / "api.js").read_text()
