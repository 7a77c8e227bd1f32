"""The UI's own pages: messages, claims, members, search; by keyboard, and for all users."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from live.chromium import PROGRAM, Chromium
from live.conftest import STRICT, eventually
from live.http_client import SETTINGS, HttpClient, add_user, api_address, http_client, quoted
from live.test_management_ui import LOADED, REFUSED_NOTHING, fact, go, log_in
from tools import axe
from warren.admin import Admin
from warren.claims import ClaimReader
from warren.local import LocalCluster
from warren.stages import SinkDriver, StageWriter, draw_epoch
from warren_wire import VERSION
from warren_wire.block.block import encode

pytestmark = pytest.mark.live
ROOT = quoted("/")
WIDTHS = (400, 800, 1_280)
PAGES = (
    *("", "connections", "channels", "exchanges", "exchanges/%2F/amq.topic", "bindings", "queues"),
    *(
        "queues/%2F/work",
        "queues/%2F/work/messages",
        "spark",
        "jobs",
        "users",
        "users/guest",
        "vhosts",
    ),
    *("vhosts/%2F", "policies", "federation", "shovels", "nodes/node-1"),
)
LARGE = '{"order": 9007199254740993, "lines": [{"sku": "a"}, []], "note": "it\'s \\u00fc"}'


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    if shutil.which(PROGRAM) is None:
        assert STRICT not in os.environ, "no Chromium: apt-get install chromium"
        pytest.skip("no Chromium")
    with LocalCluster(nodes=3, settings=SETTINGS) as made:
        yield made


@pytest.fixture(scope="module")
def started(cluster: LocalCluster) -> Iterator[Chromium]:
    with Chromium() as browser:
        browser.open(f"http://{api_address(cluster, 0)}/")
        browser.until("document.title.startsWith('Log in')", "the page for the login")
        log_in(browser, "guest", "guest")
        browser.sees("First steps")
        yield browser


@pytest.fixture
def ui(started: Chromium) -> Iterator[Chromium]:
    """The UI as an administrator sees it; a page that breaks a rule fails the test."""
    yield started
    assert started.problems == []


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


@pytest.fixture
def channel(cluster: LocalCluster) -> Iterator[Any]:
    at = pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].amqp_port)
    with pika.BlockingConnection(at) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened


def declare(channel: Any, name: str, **arguments: Any) -> None:
    channel.queue_delete(name)
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **given})


def choose(ui: Chromium, selector: str, value: str) -> None:
    ui.until(
        f"""(() => {{ const chosen = document.querySelector({json.dumps(selector)});
        if (!chosen) return false;
        chosen.value = {json.dumps(value)}; chosen.dispatchEvent(new Event("change"));
        return true; }})()""",
        f"{selector} can be chosen",
    )


def press(ui: Chromium, key: str, text: str = "", code: int = 0) -> None:
    """Press and release a key, as a user would."""
    codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, " ": 32}
    given = {"key": key, "windowsVirtualKeyCode": code or codes.get(key, 0)}
    typed = {"Enter": "\r", " ": " "}.get(key, text)
    ui.send(
        "Input.dispatchKeyEvent", type="keyDown" if typed else "rawKeyDown", **given, text=typed
    )
    ui.send("Input.dispatchKeyEvent", type="keyUp", **given)


FOCUSED = "(document.activeElement.innerText || document.activeElement.id || '').trim()"


def tab_to(ui: Chromium, text: str, most: int = 200) -> None:
    """Press Tab until the focus is at what has this text."""
    for _ in range(most):
        press(ui, "Tab")
        if ui.run(FOCUSED) == text:
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert ui.run(outline) != "none", f"the focus at {text} is visible"
            return
    raise AssertionError(f"Tab never reaches {text}:\n{ui.text()}")


# ------------------------------------------------------------------ messages


def test_messages_are_looked_at_and_stay(ui: Chromium, http: HttpClient, channel: Any) -> None:
    declare(channel, "looked")
    bodies = [LARGE.encode(), b"\x00\xff\x10", *(b"plain %d" % n for n in range(25))]
    for number, body in enumerate(bodies):
        said = pika.BasicProperties(
            headers={"n": number}, priority=number % 10, delivery_mode=2, content_type="x/y"
        )
        channel.basic_publish("", "looked", body, said)
    go(ui, "queues/%2F/looked")
    ui.click("Look at the messages")
    ui.sees("20 messages, 20 looked at")
    ui.click("Next ›")
    ui.sees("7 messages, 7 looked at")
    ui.click("‹ Back")
    ui.sees("20 messages, 20 looked at")
    ui.submit("form[data-form=browse]", filter="n = 0", count="50")
    ui.sees("1 message, 27 looked at")
    ui.run("document.querySelector('.message').open = true")
    shown = "document.querySelector('.message pre').textContent"
    assert ui.run(shown).startswith('{\n  "order": 9007199254740993,\n  "lines": [\n    {\n')
    assert json.loads(ui.run(shown)) == json.loads(LARGE)
    choose(ui, "[data-key=look]", "text")
    assert ui.run(shown) == LARGE
    ui.submit("form[data-form=browse]", filter="n = 1")
    choose(ui, "[data-key=look]", "hex")
    ui.until(f"{shown}.startsWith('00000000  00 ff 10 ')", "the body as hex")
    ui.submit("form[data-form=browse]", filter="n +")
    ui.sees("filter: ")
    ui.submit("form[data-form=browse]", filter="", contains="plain 24", states="ready")
    ui.sees("1 message, 27 looked at")
    assert http.get(f"/queues/{ROOT}/looked")["messages_ready"] == len(bodies)
    choose(ui, "[data-key=look]", "pretty")


def test_a_body_is_loaded_whole_and_downloaded(ui: Chromium, channel: Any) -> None:
    """Only so much of each is shown at first; what is saved is all of it."""
    declare(channel, "whole")
    bodies = [b"first", b"x" * 5_000 + b"end", b"last"]
    for body in bodies:
        channel.basic_publish("", "whole", body)
    go(ui, "queues/%2F/whole/messages")
    ui.sees("3 messages")
    ui.run(
        """(() => { const usual = URL.createObjectURL; window.saved = null;
        URL.createObjectURL = (data) => { window.saved = data; return usual(data); };
        HTMLAnchorElement.prototype.click = () => {}; })()"""
    )
    ui.run("[...document.querySelectorAll('.message')].forEach((one) => (one.open = true))")
    ui.sees("The first 1,024 bytes are shown.")
    second = "document.querySelectorAll('.message')[1]"
    ui.run(
        f"""[...{second}.querySelectorAll("button")]
        .find((one) => one.textContent === "Download the body").dispatchEvent(new Event("click"))"""
    )
    ui.until("window.saved !== null", "it is saved")
    assert ui.run("window.saved.text()") == bodies[1].decode()
    assert ui.run(f"{second}.querySelector('pre').textContent.length") == len(bodies[1])
    channel.queue_purge("whole")
    ui.run(f"{second}.querySelector('button').dispatchEvent(new Event('click'))")
    ui.click("Now")
    ui.sees("No message, 0 looked at")
    ui.reload()


def test_the_copied_command_publishes_the_message_again(
    cluster: LocalCluster, ui: Chromium, http: HttpClient, channel: Any
) -> None:
    declare(channel, "copied")
    headers = {"who's": 'a "quote"', "n": 7}
    for body in (LARGE.encode(), b"two\nlines", b"\x00\xff"):
        said = pika.BasicProperties(headers=headers, priority=3, type="order", message_id="m-1")
        channel.basic_publish("", "copied", body, said)
    path = f"/queues/{ROOT}/copied/messages"
    given = http.get(path)["messages"]
    lines = [
        ui.run(f"import('/ui/bodies.js').then((bodies) => bodies.publishLine({json.dumps(one)}))")
        for one in given
    ]
    channel.queue_purge("copied")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for line in lines:
        environment = {**os.environ, "PATH": programs, "WARREN_URI": cluster.uri}
        subprocess.run(["bash", "-c", line], check=True, env=environment, timeout=60)
    kept = ("body", "encoding", "headers", "priority", "routing_key", "exchange")
    again = http.get(path)["messages"]
    assert [[one[key] for key in kept] for one in again] == [
        [one[key] for key in kept] for one in given
    ]
    assert {one["properties"]["message_id"] for one in again} == {"m-1"}


def test_a_dead_letter_says_why_it_is_here(ui: Chromium, channel: Any) -> None:
    declare(channel, "letters")
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "letters"}
    declare(channel, "poisoned", **dead, x_delivery_limit=1)
    channel.basic_publish("", "poisoned", b"poison")
    for _ in range(2):
        method = eventually(lambda: channel.basic_get("poisoned")[0], "it is delivered")
        channel.basic_reject(method.delivery_tag, requeue=True)
    eventually(lambda: channel.queue_declare("letters", passive=True).method.message_count, "dead")
    go(ui, "queues/%2F/letters/messages")
    ui.run("document.querySelector('.message').open = true")
    ui.sees("Why it is here")
    ui.sees("It failed at every delivery that the queue allows in queue poisoned.")


def test_dead_letters_are_grouped_repaired_redriven_and_undone(
    ui: Chromium, http: HttpClient, channel: Any
) -> None:
    declare(channel, "grave")
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "grave"}
    declare(channel, "shop", **dead)
    for number in range(4):
        channel.basic_publish("", "shop", b"order %d" % number)
    for _ in range(4):
        method, _, _ = channel.basic_get("shop")
        channel.basic_reject(method.delivery_tag, requeue=False)

    def ready(queue: str) -> int:
        return int(http.get(f"/queues/{ROOT}/{queue}")["messages_ready"])

    eventually(lambda: ready("grave") == 4, "all are dead")
    go(ui, "queues/%2F/grave/messages")
    ui.sees("4 messages, 4 looked at")
    ui.submit("form[data-form=group]", by="reason,origin")
    ui.click("These")
    ui.until(
        "document.querySelector('form[data-form=browse]').elements.origin.value === 'shop'",
        "the group is chosen",
    )
    look = "document.querySelector('form[data-form=browse] button')"
    ui.until(f"!{look}.disabled", "its messages are shown")
    ui.run("(document.querySelector('.message').open = true)")
    ui.run("(document.querySelector('.message details').open = true)")
    area = "document.querySelector('.message textarea')"
    ui.until(f"{area}.value === 'order 0'", "its body is there to be repaired")
    ui.run(f"({area}.value = 'repaired')")
    ui.click("Redrive as repaired")
    ui.sees("it goes back with this body")
    ui.click("Redrive as repaired", "dialog[open]")
    eventually(lambda: ready("shop") == 1, "it is back")
    (back,) = http.get(f"/queues/{ROOT}/shop/messages")["messages"]
    assert back["body"] == "repaired"

    ui.submit("form[data-form=job]", action="redrive", hours="2")
    ui.sees("3 ready messages go back to the queues in which each of them died")
    ui.sees("For 2 h after its end the job can be undone.")
    ui.click("Begin", "dialog[open]")
    eventually(lambda: ready("shop") == 4, "all are back")
    go(ui, "jobs")
    ui.sees("can be undone for 1 h 59 min")
    job = max(one["job"] for one in http.get("/jobs"))
    ui.click(f"Undo job {job} of grave")
    ui.sees("Of 3 messages those come back to grave")
    ui.click("Undo", "dialog[open]")
    ui.sees("undone")
    eventually(lambda: (ready("grave"), ready("shop")) == (3, 1), "they are dead letters again")
    ui.click(f"Forget job {job} of grave")
    ui.sees("The job is forgotten.")
    for queue in ("grave", "shop"):
        channel.queue_delete(queue)


# ------------------------------------------------------------------ Spark


def test_claims_are_released_settled_and_forgotten(
    cluster: LocalCluster, ui: Chromium, http: HttpClient, channel: Any
) -> None:
    declare(channel, "work")
    for number in range(10):
        channel.basic_publish("", "work", b"%d" % number)

    def ready() -> int:
        return int(http.get(f"/queues/{ROOT}/work")["messages_ready"])

    with cluster.connect() as connection:
        reader = ClaimReader(connection, "work", "query-1")
        first = reader.register().settled + 1
        reader.open(first, max_messages=4, max_bytes=1 << 20)
        go(ui, "spark")
        ui.sees("query-1")
        ui.sees("work")
        ui.click("Release: query-1 of work")
        ui.sees("up to 4 claimed messages of work are ready again, and may be read twice")
        ui.click("Cancel", "dialog[open]")
        assert ready() == 6
        ui.click("Release: query-1 of work")
        ui.click("Release", "dialog[open]")
        ui.sees("4 messages are ready again.")
        assert ready() == 10

        registered = reader.register(go_on_after=first)
        reader.open(registered.settled + 1, max_messages=3, max_bytes=1 << 20)
        go(ui, "queues/%2F/work")
        ui.click("Settle: query-1 of work")
        ui.sees("their messages are taken as done, and leave the queue for good")
        ui.click("Settle", "dialog[open]")
        ui.sees("3 messages are settled.")
        assert ready() == 7 == http.get(f"/queues/{ROOT}/work")["messages"]
        ui.click("Forget: query-1 of work")
        ui.sees("a query with this reader begins anew")
        ui.click("Forget", "dialog[open]")
        eventually(lambda: not Admin(connection).claims.readers("work"), "it is forgotten")
        ui.until("!document.body.innerText.includes('query-1')", "and not shown any more")


def test_sinks_are_shown_and_forgotten(cluster: LocalCluster, ui: Chromium, channel: Any) -> None:
    declare(channel, "output")
    with cluster.connect() as connection:
        driver = SinkDriver("sink-1", "run-1", draw_epoch(connection))
        with StageWriter(connection, driver, batch=0, partition=0) as stage:
            stage.write(encode([b"a", b"b"], [b"\x00\x00"] * 2, (b"", b"output"), [4, 4]))
            stage.finish()
        go(ui, "spark")
        ui.sees("sink-1")
        ui.click("Forget run run-1 of sink sink-1")
        ui.sees("2 staged messages are dropped")
        ui.click("Forget", "dialog[open]")
        ui.sees("1 forgotten, 2 messages dropped.")
        assert Admin(connection).sinks.list("output").total == 0


# ------------------------------------------------------------------ a queue's parts


def test_priorities_age_members_and_delayed_messages(
    ui: Chromium, http: HttpClient, channel: Any
) -> None:
    delay = {"x_delayed_retry_type": "failed", "x_delayed_retry_min": 3_600_000}
    declare(channel, "parts", **delay)
    for priority in (1, 1, 5, 9):
        said = pika.BasicProperties(priority=priority)
        channel.basic_publish("", "parts", b"body", said)
    method, _, _ = channel.basic_get("parts")
    channel.basic_reject(method.delivery_tag, requeue=True)
    eventually(lambda: http.get(f"/queues/{ROOT}/parts").get("messages_delayed"), "delayed")
    go(ui, "queues/%2F/parts")
    if "messages_by_priority" in http.get(f"/queues/{ROOT}/parts"):
        fact(ui, "Priority 1", 2)
    ui.sees(" old")
    ui.sees("59 min")
    ui.click("All now")
    ui.sees("Make the 1 delayed messages ready now?")
    ui.click("All now", "dialog[open]")
    ui.sees("1 messages are ready.")
    fact(ui, "Ready", 4)
    follower = ui.until(
        """[...document.querySelectorAll("button")].map((one) => one.getAttribute("aria-label"))
        .find((one) => one && one.startsWith("Lead: "))""",
        "a follower that may lead",
    )
    ui.click(follower)
    ui.click("Lead", "dialog[open]")
    node = follower.removeprefix("Lead: ")
    ui.sees(f"{node} leads parts.")
    assert http.get(f"/queues/{ROOT}/parts")["leader"] == node


def test_a_deleted_queue_is_told_on_its_open_page(
    ui: Chromium, http: HttpClient, channel: Any
) -> None:
    for page in ("queues/%2F/brief", "queues/%2F/brief/messages"):
        declare(channel, "brief")
        channel.basic_publish("", "brief", b"kept on the screen")
        go(ui, page)
        ui.sees("brief")
        channel.queue_delete("brief")
        ui.click("Now")
        ui.sees("The queue brief is not there: it was deleted, or you may not see it.")
        assert ui.run("document.querySelectorAll('.problem:not([hidden])').length") == 1
        assert ui.run("document.querySelectorAll('dl, .message').length") > 0, "what was known"
        asked = ui.run("performance.getEntriesByType('resource').length")
        threading.Event().wait(6)
        assert ui.run("performance.getEntriesByType('resource').length") == asked
        declare(channel, "brief")
        ui.click("Now")
        ui.until(REFUSED_NOTHING, "it is there again")
    channel.queue_delete("brief")


def test_a_node_says_how_it_is(ui: Chromium) -> None:
    go(ui, "nodes/node-1")
    fact(ui, "Version", VERSION)
    for name in ("Log on disk", "A sync takes", "Its loop is late by", "Files", "Data"):
        ui.until(
            f"""[...document.querySelectorAll("dt")].some((one) => one.innerText === {name!r} &&
            one.nextSibling.innerText.trim() !== "")""",
            name,
        )
    ui.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    row = """[...document.querySelectorAll("td")]
      .find((one) => one.innerText === "management.enabled")?.parentElement.innerText"""
    ui.until(f"/true\\s+file/.test({row} || '')", "a setting, with the file that sets it")


def test_pictures_show_what_is_connected(ui: Chromium, http: HttpClient, channel: Any) -> None:
    declare(channel, "drawn")
    channel.exchange_declare("source", "topic")
    channel.queue_bind("drawn", "source", "a.#")
    channel.basic_consume("drawn", lambda *_: None, consumer_tag="taker")
    texts = "[...document.querySelectorAll('.picture text')].map((one) => one.textContent)"
    try:
        go(ui, "queues/%2F/drawn")
        ui.until(f"['source', 'a.#', 'taker'].every((one) => {texts}.includes(one))", "the flow")
        assert ui.run("document.querySelectorAll('.picture path').length") == 3
        go(ui, "")
        assert {"node-0", "node-1", "node-2"} <= set(ui.run(texts))
        assert ui.run("document.querySelectorAll('.picture line.up').length") == 3
    finally:
        channel.exchange_delete("source")


# ------------------------------------------------------------------ search, keyboard, languages


def test_one_box_finds_everything_by_keyboard(ui: Chromium, http: HttpClient, channel: Any) -> None:
    declare(channel, "needle-queue")
    channel.exchange_declare("needle-exchange", "fanout")
    add_user(http, "needle-user", "management", None)
    go(ui, "")
    press(ui, "/", "/", 191)
    ui.until(f"{FOCUSED} === 'search'", "the focus is in the box")
    ui.send("Input.insertText", text="NEEDLE")
    ui.until("document.querySelectorAll('.found a').length === 3", "all are found")
    titles = ui.run("[...document.querySelectorAll('.found h2')].map((one) => one.innerText)")
    assert titles == ["Queues", "Exchanges", "Users"]
    press(ui, "ArrowDown")
    press(ui, "ArrowDown")
    assert ui.run(FOCUSED) == "needle-exchange"
    press(ui, "Enter")
    ui.sees("Exchange needle-exchange")
    assert ui.run("document.querySelector('.found').hidden")
    press(ui, "/", "/", 191)
    ui.until(f"{FOCUSED} === 'search'", "the focus is in the box")
    ui.run("document.activeElement.value = ''")
    ui.send("Input.insertText", text="nothing has this name")
    ui.sees("Nothing has this in its name.")
    press(ui, "Escape")
    assert ui.run("document.querySelector('.found').hidden")
    channel.exchange_delete("needle-exchange")
    assert http("DELETE", "/users/needle-user").status == 204


def test_a_queue_is_purged_without_a_mouse(ui: Chromium, http: HttpClient, channel: Any) -> None:
    declare(channel, "by-keyboard")
    channel.basic_publish("", "by-keyboard", b"body")
    go(ui, "")
    tab_to(ui, "Queues")
    press(ui, "Enter")
    ui.until("document.title.startsWith('Queues')", "the list")
    ui.until(LOADED, "is there")
    tab_to(ui, "by-keyboard")
    press(ui, "Enter")
    ui.sees("Queue by-keyboard")
    ui.until(LOADED, "the page of the queue")
    fact(ui, "Ready", 1)
    tab_to(ui, "Purge or delete")
    press(ui, "Enter")
    tab_to(ui, "Purge messages")
    press(ui, "Enter")
    ui.until(f"{FOCUSED} === 'Cancel'", "the safe answer has the focus")
    press(ui, "Escape")
    ui.until("!document.querySelector('dialog')", "the question is gone")
    assert http.get(f"/queues/{ROOT}/by-keyboard")["messages"] == 1
    ui.until("document.activeElement.textContent === 'Purge messages'", "the focus is back")
    press(ui, "Enter")
    ui.until(f"{FOCUSED} === 'Cancel'", "the question again")
    ui.send(
        "Input.dispatchKeyEvent", type="rawKeyDown", key="Tab", windowsVirtualKeyCode=9, modifiers=8
    )
    assert ui.run(FOCUSED) == "Purge messages"
    press(ui, "Enter")
    ui.sees("The messages are deleted.")


@pytest.mark.parametrize(
    ("language", "number", "bytes_"), [("en-US", "1,234", "1.2 KiB"), ("de-DE", "1.234", "1,2 KiB")]
)
def test_numbers_are_of_the_browsers_language(
    ui: Chromium, channel: Any, language: str, number: str, bytes_: str
) -> None:
    declare(channel, "numbers")
    for _ in range(1_234):
        channel.basic_publish("", "numbers", b"")
    channel.basic_publish("", "numbers", b"x" * 1_180)
    channel.basic_get("numbers", auto_ack=True)
    ui.send("Emulation.setLocaleOverride", locale=language)
    try:
        go(ui, "queues")
        go(ui, "queues/%2F/numbers")
        fact(ui, "Ready", number)
        ui.sees(" KiB")
        unit = "[...document.querySelectorAll('dt')].find((one) => one.innerText === 'Ready bytes')"
        assert ui.run(f"{unit}.nextSibling.innerText").replace("\xa0", " ").endswith("KiB")
        assert ("," in ui.run(f"{unit}.nextSibling.innerText")) == ("," in bytes_)
    finally:
        ui.send("Emulation.setLocaleOverride")
        channel.queue_delete("numbers")


# ------------------------------------------------------------------ for all users

ASKED_OF_AXE = """axe.run(document, {resultTypes: ["violations"], runOnly: {type: "tag",
  values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}})
  .then((found) => found.violations.flatMap((one) =>
    one.nodes.map((node) => `${one.id}: ${node.target.join(" ")}: ${node.failureSummary}`)))"""


@pytest.fixture(scope="module")
def axe_script() -> str:
    if not axe.ensure():
        assert STRICT not in os.environ, "no axe-core: apt-get install npm"
        pytest.skip("no axe-core")
    return axe.SCRIPT.read_text()


@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_at_three_widths(
    ui: Chromium, channel: Any, axe_script: str, theme: str
) -> None:
    channel.queue_declare("work", durable=True, arguments={"x-queue-type": "quorum"})
    channel.basic_publish("", "work", b'{"a": 1}')
    choose(ui, "#theme", theme)
    try:
        found: dict[str, str] = {}
        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            ui.send("Emulation.setDeviceMetricsOverride", **size)
            for page in PAGES:
                go(ui, page)
                ui.until(REFUSED_NOTHING, f"all parts of {page} are there")
                ui.run(
                    "[...document.querySelectorAll('details')].forEach((one) => one.open = true)"
                )
                ui.run(f"(() => {{ if (!window.axe) {{ {axe_script} }} }})()")
                for one in ui.run(ASKED_OF_AXE):
                    found.setdefault(one, f"{page} at {width}")
                assert ui.run("document.documentElement.scrollWidth") <= width, (page, width)
        assert not found, "\n".join(f"{where}: {what}" for what, where in found.items())
    finally:
        ui.send("Emulation.clearDeviceMetricsOverride")
        choose(ui, "#theme", "")
