"""Debian's Chromium without a window, driven over the DevTools Protocol through two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from live.conftest import eventually
from tests.patience import PATIENCE_S

PROGRAM: Final = "chromium"
OPTIONS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)
CLOSES_S: Final = 20
ON_PIPES: Final = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 20) for one in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Starts a program with these descriptors as 3 and 4, where Chromium expects its pipes."""


class Chromium:
    """One browser with one page; every message of the protocol passes `_take`.

    problems   what a page may not do: uncaught errors, violated policies, dialogs
    passwords  requests for a password that the browser would have shown to its user
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.passwords: list[str] = []
        self._number = 0
        self._session = ""
        self._buffer = b""
        self._answers: dict[int, Any] = {}
        self._place = Path(tempfile.mkdtemp(prefix="warren-chromium-"))
        theirs, self._to = os.pipe()
        self._from, writes = os.pipe()
        try:
            profile = f"--user-data-dir={self._place / 'profile'}"
            command = [PROGRAM, *OPTIONS, profile, "--window-size=1280,900", "about:blank"]
            with (self._place / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", ON_PIPES, str(theirs), str(writes), *command],
                    pass_fds=(theirs, writes),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "HOME": str(self._place)},
                    start_new_session=True,
                )
        finally:
            os.close(theirs)
            os.close(writes)

    def __enter__(self) -> Chromium:
        made = self.send("Target.createTarget", url="about:blank")
        attached = self.send("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._to)  # the end of its pipe ends the browser
        try:
            self._process.wait(CLOSES_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        os.close(self._from)
        shutil.rmtree(self._place, ignore_errors=True)

    # ------------------------------------------------------------ the protocol

    def send(self, method: str, **params: Any) -> Any:
        """Return the result of a command."""
        number = self._write(method, params)
        while number not in self._answers:
            self._take(self._read())
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _write(self, method: str, params: dict[str, Any]) -> int:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        return self._number

    def _read(self) -> Any:
        while b"\0" not in self._buffer:
            piece = os.read(self._from, 1 << 20)
            assert piece, (self._place / "log").read_text(errors="replace")[-2_000:]
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _take(self, message: Any) -> None:
        method, params = message.get("method"), message.get("params", {})
        if "id" in message:
            self._answers[message["id"]] = message
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["source"] == "security":
            self.problems.append(str(params["entry"]))
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"a dialog: {params['message']}")
            self._write("Page.handleJavaScriptDialog", {"accept": True})
        elif method == "Fetch.requestPaused":
            self._write("Fetch.continueRequest", {"requestId": params["requestId"]})
        elif method == "Fetch.authRequired":
            self.passwords.append(params["request"]["url"])
            answer = {"response": "CancelAuth"}
            asked = {"requestId": params["requestId"], "authChallengeResponse": answer}
            self._write("Fetch.continueWithAuth", asked)

    # ------------------------------------------------------------ the page

    def watch_passwords(self) -> None:
        """Note in `passwords` when the browser would ask its user for a password."""
        self.send("Fetch.enable", handleAuthRequests=True, patterns=[{"urlPattern": "*"}])

    def open(self, address: str) -> None:
        """Begin to load a page."""
        self.send("Page.navigate", url=address)

    def reload(self) -> None:
        """Load the page again, and wait until it is another one than before."""
        self.run("(window.before = true)")
        self.send("Page.reload")
        self.until("!window.before && document.readyState === 'complete'", "the page again")

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression, of a promise what it becomes."""
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        result = self.send("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in result, (script, result)
        return result["result"].get("value")

    def text(self) -> str:
        """Return the text of the page that a user would see."""
        return str(self.run("document.body ? document.body.innerText : ''"))

    def until(self, script: str, what: str) -> Any:
        """Wait until an expression is true; return its value."""

        def holds() -> Any:
            # A page that is just being replaced has no context to run it in.
            try:
                return self.run(script)
            except AssertionError:
                return None

        try:
            return eventually(holds, what, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.problems}; the page:\n{self.text()}") from None

    def sees(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.until(f"document.body && document.body.innerText.includes({json.dumps(text)})", text)

    def click(self, text: str, within: str = "body") -> None:
        """Press the button, link or summary with that text, or label, when it is there."""
        places = ", ".join(f"{within} {kind}" for kind in ("button", "a", "summary"))
        script = f"""(() => {{
          const all = [...document.querySelectorAll({json.dumps(places)})];
          const named = (one) => [one.textContent, one.getAttribute("aria-label")];
          const found = all.find((one) => named(one).includes({json.dumps(text)}));
          if (!found || found.disabled) return false;
          found.click();
          return true;
        }})()"""
        self.until(script, f"{text!r} can be pressed in {within}")

    def fill(self, form: str, **values: Any) -> None:
        """Open a form, by its selector, and fill in its fields by their names."""
        script = f"""(() => {{
          const form = document.querySelector({json.dumps(form)});
          if (!form) return false;
          for (let one = form; one; one = one.parentElement)
            if (one.tagName === "DETAILS") one.open = true;
          for (const [name, value] of Object.entries({json.dumps(values)}))
            if (typeof value === "boolean") form.elements[name].checked = value;
            else form.elements[name].value = value;
          return true;
        }})()"""
        self.until(script, f"there is {form}")

    def submit(self, form: str, **values: Any) -> None:
        """Fill in a form and send it."""
        self.fill(form, **values)
        self.run(f"document.querySelector({json.dumps(form)}).requestSubmit()")

    def picture(self, target: Path) -> None:
        """Write a picture of the window, in PNG."""
        found = self.send("Page.captureScreenshot", format="png")
        target.write_bytes(base64.b64decode(found["data"]))
