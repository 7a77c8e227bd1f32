"""The management UI in a browser: what an operator does there, and what a hostile name may not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from live.chromium import PROGRAM, Chromium
from live.conftest import STRICT, eventually
from live.http_client import SETTINGS, HttpClient, add_user, api_address, http_client, quoted
from warren.local import LocalCluster
from warren_broker.http.ui_files import UPLOT_FOLDER

pytestmark = pytest.mark.live
ROOT = quoted("/")
HOSTILE = '<img src=x onerror="alert(1)">&quot;\'<script>alert(2)</script>'
NARROW_PX = 400
LARGE = (1 << 53) + 1
"""No number of JavaScript, which has 2^53 in its place."""
PAGES = (
    *("", "connections", "channels", "exchanges", "exchanges/%2F/amq.topic", "bindings", "queues"),
    *("queues/%2F/plain", "users", "users/guest", "vhosts", "vhosts/%2F", "policies"),
    *("federation", "shovels", "nodes/node-1", "audit", "log"),
)
UNLABELLED = """[...document.querySelectorAll("input, select, textarea, button, a")].filter((one) =>
  !(one.labels && one.labels.length) && !one.getAttribute("aria-label") && !one.textContent.trim()
).map((one) => one.outerHTML)"""
LOADED = """!document.querySelector(".content .quiet, .page[data-left]") &&
  !!document.querySelector("main h1")"""
REFUSED_NOTHING = "[...document.querySelectorAll('.problem')].every((one) => !one.textContent)"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    if shutil.which(PROGRAM) is None:
        assert STRICT not in os.environ, "no Chromium: apt-get install chromium"
        pytest.skip("no Chromium")
    with LocalCluster(nodes=3, settings=SETTINGS) as made:
        assert http_client(made)("PUT", f"/queues/{ROOT}/plain", {}).status == 201
        yield made


@pytest.fixture(scope="module")
def started(cluster: LocalCluster) -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture
def browser(started: Chromium, cluster: LocalCluster) -> Iterator[Chromium]:
    """The browser at the login of node-0; a page that breaks a rule fails the test."""
    started.open("about:blank")
    started.problems.clear()
    started.open(f"http://{api_address(cluster, 0)}/")
    started.until("location.protocol === 'http:' && (sessionStorage.clear(), true)", "the UI")
    started.reload()
    started.until("document.title.startsWith('Log in')", "the page for the login")
    yield started
    assert started.problems == []


@pytest.fixture
def ui(browser: Chromium) -> Chromium:
    """The UI as an administrator sees it."""
    log_in(browser, "guest", "guest")
    browser.sees("Cluster")
    return browser


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


def log_in(browser: Chromium, user: str, password: str) -> None:
    browser.submit("form", user=user, password=password, token="")


def go(browser: Chromium, page: str) -> None:
    """Open a page of the UI, and wait until all its sections are there."""
    browser.run(
        f"""(() => {{ const wanted = {json.dumps(f"#/{page}")};
        if (window.location.hash === wanted) return;
        document.querySelector(".page").dataset.left = "";
        window.location.hash = wanted; }})()"""
    )
    browser.until(LOADED, f"the page {page}")


def fact(browser: Chromium, name: str, value: Any) -> None:
    """Wait until the page tells this value of that name."""
    found = f"[...document.querySelectorAll('dt')].find((one) => one.innerText === {name!r})"
    browser.until(
        f"({found} || {{}}).nextSibling?.innerText === {str(value)!r}", f"{name}: {value}"
    )


def publish(http: HttpClient, queue: str, payload: str, count: int) -> None:
    body = {"properties": {}, "routing_key": queue, "payload_encoding": "string"}
    for number in range(count):
        said = http(
            "POST",
            f"/exchanges/{ROOT}/amq.default/publish",
            {**body, "payload": f"{payload} {number}"},
        )
        assert said.body == {"routed": True}


def messages(http: HttpClient, queue: str) -> int:
    return int(http.get(f"/queues/{ROOT}/{queue}")["messages"])


# ------------------------------------------------------------------ login


def test_wrong_logins_are_told_by_the_page_and_not_by_the_browser(
    cluster: LocalCluster, browser: Chromium, http: HttpClient
) -> None:
    add_user(http, "tagless", "")
    browser.watch_passwords()
    try:
        log_in(browser, "guest", "wrong")
        browser.sees("Login refused: user or password is wrong")
        log_in(browser, "tagless", "pw")
        browser.sees("Not permitted: Not management user")
        assert browser.passwords == [], "the browser has asked its user for nothing"
        browser.open(f"http://{api_address(cluster, 0)}/api/whoami")
        assert browser.passwords, "it would have been noticed"
    finally:
        browser.send("Fetch.disable")
        browser.passwords.clear()


def test_a_login_lasts_until_it_is_ended_or_refused(browser: Chromium, http: HttpClient) -> None:
    add_user(http, "limited", "management")
    log_in(browser, "limited", "pw")
    browser.sees("limited (management)")
    browser.reload()
    browser.sees("limited (management)")
    go(browser, "users")
    browser.sees("Not permitted: ")
    go(browser, "queues")
    browser.sees("plain")
    assert http("PUT", "/users/limited", {"password": "other", "tags": "management"}).status == 204
    browser.click("Now")
    browser.sees("Login refused")
    assert browser.run("sessionStorage.getItem('warren-login')") is None
    log_in(browser, "limited", "other")
    browser.sees("limited (management)")
    browser.click("Log out")
    browser.until("document.title.startsWith('Log in')", "the page for the login")
    assert browser.run("sessionStorage.getItem('warren-login')") is None


def test_an_answer_that_comes_after_the_end_of_a_login_is_of_no_effect(ui: Chromium) -> None:
    """1. The page asks for the vhosts.  2. The user logs out.  3. Then they are told."""
    ui.run(
        """(() => { const usual = window.fetch; window.held = [];
        window.fetch = async (address, more) => {
          const answer = await usual(address, more);
          if (String(address).includes("vhosts"))
            await new Promise((released) => window.held.push(released));
          return answer;
        }; })()"""
    )
    go(ui, "queues")
    ui.until("window.held.length > 0", "the answer is there, and held")
    ui.click("Log out")
    ui.until("document.title.startsWith('Log in')", "the page for the login")
    ui.run("window.held.forEach((released) => released())")
    ui.run("new Promise((later) => setTimeout(later))")
    assert ui.problems == []


# ------------------------------------------------------------------ charts


DRAWN = """[...document.querySelectorAll(".chart canvas")].filter((one) =>
  one.getContext("2d").getImageData(0, 0, one.width, one.height).data.some(Boolean)).length"""
DESCRIBED = "[...document.querySelectorAll('.chart')].map((one) => one.getAttribute('aria-label'))"


@pytest.fixture(scope="module")
def uplot() -> None:
    if not UPLOT_FOLDER.is_dir():
        assert STRICT not in os.environ, "no uPlot: python3 build.py test fetches it with npm"
        pytest.skip("no uPlot")


@pytest.mark.usefixtures("uplot")
@pytest.mark.long
def test_charts_show_the_lengths_and_rates_of_a_queue_and_of_the_cluster(
    ui: Chromium, http: HttpClient
) -> None:
    """Drawn by a library's script, without a problem of the content security policy."""
    assert http("PUT", f"/queues/{ROOT}/charted", {}).status == 201
    publish(http, "charted", "body", 3)
    go(ui, "queues/%2F/charted")
    ui.until(f"{DRAWN} === 2", "two charts are drawn")
    ui.until(f"{DESCRIBED}[0].includes('Ready 3, Unacknowledged 0, Total 3')", "the lengths")
    assert ui.run(f"{DESCRIBED}[1]").startswith("Message rates, now: Published ")
    legend = ui.run("[...document.querySelectorAll('.u-legend')].map((one) => one.innerText)")
    assert "Unacknowledged" in legend[0] and "Acknowledged" in legend[1]
    for span in ("60", "3600"):
        ui.run(
            f"""(() => {{ const chosen = document.querySelector("select[name=span]");
            chosen.value = "{span}"; chosen.dispatchEvent(new Event("change")); }})()"""
        )
        ui.until(f"{DRAWN} === 2", "charts of another time")
    assert ui.run("sessionStorage.getItem('warren-chart-span')") == "3600"
    go(ui, "")
    ui.until(f"{DRAWN} === 2", "charts of the cluster")
    assert http("DELETE", f"/queues/{ROOT}/charted").status == 204


def test_users_without_monitoring_are_told_that_charts_have_nothing_to_show(
    browser: Chromium, http: HttpClient
) -> None:
    add_user(http, "uncharted", "management")
    log_in(browser, "uncharted", "pw")
    browser.sees("Cluster")
    expected = "a user with the tag monitoring sees them" if UPLOT_FOLDER.is_dir() else "no charts"
    browser.sees(expected)


# ------------------------------------------------------------------ queues


def test_queues_are_shown_in_pages_and_hostile_names_as_they_are(
    ui: Chromium, http: HttpClient
) -> None:
    classic = {"x-queue-type": "classic"}
    names = [HOSTILE, "..", *(f"q{number:03}" for number in range(598))]
    kept = {"vhost": "many", "durable": True, "auto_delete": False, "arguments": classic}
    assert http("PUT", "/vhosts/many", {}).status == 201
    assert http("PUT", "/permissions/many/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    document = {"queues": [{"name": name, **kept} for name in names]}
    assert http("POST", "/definitions", document).status == 204
    go(ui, "queues")
    ui.until("document.querySelector('#vhost').options.length > 2", "the vhosts are known")
    ui.run(
        "(() => { const chosen = document.querySelector('#vhost'); chosen.value = '\"many\"';"
        " chosen.dispatchEvent(new Event('change')); })()"
    )
    ui.sees("page 1 of 6, 600 in all")
    ui.click("Next page")
    ui.sees("page 2 of 6, 600 in all")
    ui.sees("q100")
    ui.run(
        "(() => { const text = document.querySelector('#queues-filter'); text.value = 'Q59';"
        " text.dispatchEvent(new Event('input')); })()"
    )
    ui.sees("page 1 of 1, 8 of 600 in all")
    ui.click("Name")
    ui.click("Name ▴")
    ui.until("document.querySelector('tbody tr').innerText.startsWith('q597')", "sorted downwards")
    ui.run(
        "(() => { const text = document.querySelector('#queues-filter'); text.value = 'img';"
        " text.dispatchEvent(new Event('input')); })()"
    )
    ui.sees("1 of 600 in all")
    ui.sees(HOSTILE)
    ui.click(HOSTILE, "tbody")
    ui.sees(f"Queue {HOSTILE}")
    fact(ui, "Type", "classic")
    assert ui.run("document.querySelectorAll('main img, main script').length") == 0

    ui.run("window.location.hash = '#/queues/many/..'")
    ui.sees('A browser cannot ask for an object named ".."')
    assert http("DELETE", "/vhosts/many").status == 204


def test_messages_are_looked_at_moved_and_purged(ui: Chromium, http: HttpClient) -> None:
    for name in ("from", "to"):
        assert http("PUT", f"/queues/{ROOT}/{name}", {}).status == 201
    publish(http, "from", "<b>body</b>", 5)
    go(ui, "queues/%2F/from")
    fact(ui, "Ready", 5)
    ui.submit("form[data-form=get]", count=2)
    ui.sees("2 messages.")
    found = ui.run("[...document.querySelectorAll('.message pre')].map((one) => one.textContent)")
    assert found == ["<b>body</b> 0", "<b>body</b> 1"]

    ui.submit("form[data-form=move]", to="nowhere")
    ui.sees("There is no queue nowhere in vhost /: add it first.")
    ui.submit("form[data-form=move]", to="to")
    eventually(lambda: messages(http, "to") == 5, "all are moved")
    fact(ui, "Ready", 0)
    eventually(lambda: http.get("/shovels") == [], "the shovel has removed itself")

    go(ui, "queues/%2F/to")
    fact(ui, "Ready", 5)
    ui.submit("form[data-form=publish]", payload="one more", headers='{"h": 1}')
    ui.sees("The message is published.")
    fact(ui, "Ready", 6)
    ui.submit("form[data-form=publish]", headers="[")
    ui.sees("Headers: this is no JSON")
    ui.click("Purge messages", ".panel")
    ui.click("Cancel", "dialog[open]")
    assert messages(http, "to") == 6
    ui.click("Purge messages", ".panel")
    ui.click("Purge messages", "dialog[open]")
    ui.sees("The messages are deleted.")
    fact(ui, "Ready", 0)
    ui.click("Delete queue", ".panel")
    ui.click("Delete queue", "dialog[open]")
    ui.until("window.location.hash === '#/queues'", "the list of queues")
    assert http("GET", f"/queues/{ROOT}/to").status == 404


# ------------------------------------------------------------------ what is set


def test_what_is_set_in_forms_is_there(ui: Chromium, http: HttpClient) -> None:
    go(ui, "queues")
    ui.submit("form[data-form=add-queue]", name="made", arguments='{"x-max-length": 7}')
    ui.sees("Queue made is there.")
    assert http.get(f"/queues/{ROOT}/made")["arguments"] == {"x-max-length": 7}
    ui.submit("form[data-form=add-queue]", name="made", arguments="")
    ui.sees("inequivalent arg 'x-max-length' for queue 'made'")
    large = json.dumps({"x-max-length": LARGE})
    ui.submit("form[data-form=add-queue]", name="made", arguments=large)
    ui.sees("is beyond 2^53")

    go(ui, "exchanges")
    ui.submit("form[data-form=add-exchange]", name="x", type="topic")
    ui.sees("Exchange x is there.")
    go(ui, "exchanges/%2F/x")
    ui.submit("form[data-form=bind]", kind="q", to="made", routing_key="a.#")
    ui.sees("It is bound.")
    ui.sees("a.#")
    ui.submit("form[data-form=publish]", routing_key="b")
    ui.sees("no queue is bound for it")
    ui.click('Unbind x to made with key "a.#"')
    ui.click("Unbind", "dialog[open]")
    ui.sees("The binding is removed.")
    assert http.get(f"/exchanges/{ROOT}/x/bindings/source") == []

    go(ui, "users")
    ui.submit("form[data-form=user]", name="u", password="a", again="b")
    ui.sees("The passwords are not the same.")
    ui.submit("form[data-form=user]", name="u", password="pw", again="pw", tags="monitoring")
    ui.sees("User u is there.")
    go(ui, "users/u")
    ui.submit("form[data-form=permissions]", vhost="/", configure="^u", write="", read=".*")
    ui.sees("Permissions of u in / are set.")
    assert http.get(f"/permissions/{ROOT}/u")["configure"] == "^u"
    ui.submit("form[data-form=user]", tags="management")
    ui.sees("User u is there.")
    assert http.as_user("u:pw").get("/whoami")["tags"] == ["management"], "the password stays"

    go(ui, "policies")
    limit = '{"max-length": 3}'
    ui.submit("form[data-form=policies]", name="p", pattern="^made$", definition=limit)
    ui.sees("Policy p is set.")
    ui.sees("max-length: 3")
    ui.click("Delete p of vhost /")
    ui.click("Delete", "dialog[open]")
    ui.sees("Policy p is deleted.")
    assert http.get("/policies") == []


def test_the_audit_log_is_searched_and_levels_are_set(ui: Chromium, http: HttpClient) -> None:
    for name in ("found-in-ui", "other-in-ui"):
        assert http("PUT", f"/queues/{ROOT}/{name}", {}).status == 201
    go(ui, "audit")
    ui.sees("PUT /queues/:queue")
    ui.sees("other-in-ui")
    ui.run(
        """(() => { const one = document.querySelector("[data-key=Contains]");
        one.value = "found-in-ui"; one.dispatchEvent(new Event("change")); })()"""
    )
    ui.until("document.querySelectorAll('tbody tr').length === 1", "one record is found")
    ui.sees("found-in-ui")
    go(ui, "log")
    ui.submit("form[data-form=level]", category="shovel", level="debug")
    ui.sees("Category shovel: debug, until the nodes restart.")
    levels = {one["level"] for one in http.get("/log/levels") if one["category"] == "shovel"}
    assert levels == {"debug"}


def test_definitions_are_exported_and_imported_to_the_last_digit(
    ui: Chromium, http: HttpClient
) -> None:
    given = {"vhost": "/", "durable": True, "auto_delete": False}
    exact = {**given, "name": "exact", "arguments": {"x-max-length": LARGE}}
    text = json.dumps({"queues": [exact]})
    ui.submit("form[data-form=import]", text=text)
    ui.sees("The definitions are imported.")
    assert http.get(f"/queues/{ROOT}/exact")["arguments"] == {"x-max-length": LARGE}
    go(ui, "queues/%2F/exact")
    ui.sees("x-max-length: about 9007199254740")
    go(ui, "")
    ui.run(
        """(() => { const usual = URL.createObjectURL;
        URL.createObjectURL = (data) => { window.exported = data; return usual(data); };
        HTMLAnchorElement.prototype.click = () => {}; })()"""
    )
    ui.run(
        "[...document.querySelectorAll('button')].find((one) => one.textContent =="
        " 'Export definitions').dispatchEvent(new Event('click'))"
    )
    ui.sees("The definitions are exported")
    exported = json.loads(ui.run("window.exported.text()"))
    (found,) = (one for one in exported["queues"] if one["name"] == "exact")
    assert found["arguments"]["x-max-length"] == LARGE
    assert http("DELETE", f"/queues/{ROOT}/exact").status == 204


def test_a_connection_is_closed_with_a_reason(cluster: LocalCluster, ui: Chromium) -> None:
    properties = {"connection_name": HOSTILE}
    with pytest.raises(ConnectionClosedByBroker, match="end of the day – ü"):
        with pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", cluster.nodes[1].amqp_port, client_properties=properties
            )
        ) as connection:
            connection.channel().basic_consume("plain", lambda *_: None, consumer_tag="tag-1")
            name = eventually(
                lambda: [one["name"] for one in http_client(cluster).get("/connections")],
                "the connection is known",
            )[0]
            go(ui, "channels")
            ui.sees("tag-1")
            go(ui, "connections")
            ui.sees(HOSTILE)
            ui.click(name)
            ui.sees(f"Connection {name}")
            ui.submit("form[data-form=close]", reason="end of the day – ü")
            ui.until("window.location.hash === '#/connections'", "the list of connections")
            while True:
                connection.process_data_events(1)


# ------------------------------------------------------------------ statistics

TELL = """(() => { const usual = window.fetch;
        window.fetch = async (address, more) => {
          const answer = await usual(address, more);
          const told = TOLD[address.pathname.replace(/^.*[/]api/, "")];
          if (!told) return answer;
          return new Response(JSON.stringify({ ...(await answer.json()), ...told }));
        }; })()"""
"""Lets the page see what TOLD has beside what the API answers, by path."""
TOLD = {
    "/overview": {"message_stats": {"publish": 5, "publish_details": {"rate": 12.5}}},
    "/nodes/node-1": {"mem_used": 3 << 20, "mem_limit": 2 << 30, "uptime": 90_060_000},
    "/queues/%2F/plain": {
        "message_stats": {"ack_details": {"rate": 2}},
        "consumer_details": [
            {
                "consumer_tag": "tag-0.9.1",
                "channel_details": {"name": "a -> b (1)", "connection_name": "a -> b"},
                "ack_required": True,
                "prefetch_count": 1_000,
                "arguments": {"x-priority": 3},
            },
            {
                "consumer_tag": "tag-1.0",
                "channel_details": {},
                "connection_details": {"name": "c -> d"},
            },
        ],
    },
}
"""What RabbitMQ tells of these objects, by the ends of their paths."""


def test_rates_consumers_and_memory_are_shown_where_the_api_tells_them(ui: Chromium) -> None:
    ui.run(TELL.replace("TOLD", json.dumps(TOLD)))
    go(ui, "nodes/node-1")
    fact(ui, "Memory", "3.0 MiB of 2.0 GiB")
    fact(ui, "Up for", "1 d 1 h")
    go(ui, "")
    fact(ui, "Published", "12.5/s")
    go(ui, "queues/%2F/plain")
    fact(ui, "Acknowledged", "2.0/s")
    for text in ("tag-0.9.1", "a -> b (1)", "1,000", "x-priority: 3", "tag-1.0", "c -> d"):
        ui.sees(text)
    ui.click("c -> d")
    ui.sees("Connection c -> d")


def test_the_overview_finishes_an_upgrade(ui: Chromium) -> None:
    nodes = [
        {"name": name, "oldest": 1, "newest": 2 - behind, "holds_back": behind}
        for name, behind in (("node-0", True), ("node-1", False))
    ]
    told = {"/cluster-version": {"version": 1, "attainable": 1, "nodes": nodes}}
    ui.run(TELL.replace("TOLD", json.dumps(told)))
    go(ui, "")
    fact(ui, "Cluster's version", "1")
    ui.sees("holds it back")
    assert "Finish the upgrade" not in ui.run("document.body.textContent")
    told["/cluster-version"]["attainable"] = 2
    ui.run(TELL.replace("TOLD", json.dumps(told)))
    go(ui, "nodes/node-1")
    go(ui, "")
    ui.click("Finish the upgrade")
    ui.sees("Raise the cluster to version 2?")
    ui.click("Finish the upgrade", "dialog[open]")
    ui.sees("The cluster has version 2.")


# ------------------------------------------------------------------ links


@pytest.mark.long
def test_shovels_and_federation_say_what_is_wrong_and_are_handled(
    ui: Chromium, http: HttpClient
) -> None:
    nowhere = "amqp://guest:hidden@127.0.0.1:1"
    go(ui, "shovels")
    ui.submit(
        "form[data-form=shovel]",
        **{"name": "s", "src-uri": nowhere, "src-queue": "a", "dest-queue": "plain"},
    )
    ui.sees("Shovel s is set.")
    ui.until("!!document.querySelector('.reason')?.textContent", "its last error")
    shown = ui.run("document.querySelector('.reason').textContent")
    assert "refused" in shown.lower() and "hidden" not in ui.text()
    ui.click("Pause s")
    ui.sees("paused")
    ui.click("Resume s")
    ui.sees("s is resumed.")
    ui.click("Restart s")
    ui.sees("s is restarted.")
    ui.click("Delete s")
    ui.click("Delete", "dialog[open]")
    ui.sees("No shovels.")
    assert http.get("/shovels") == []

    go(ui, "federation")
    ui.sees("No links")
    ui.submit("form[data-form=federation-upstream]", name="up", uri=nowhere)
    ui.sees("The upstream up is set.")
    policy = {"pattern": "^plain$", "definition": {"federation-upstream": "up"}}
    assert http("PUT", f"/policies/{ROOT}/f", {**policy, "apply-to": "queues"}).status == 201
    ui.until("!!document.querySelector('.reason')?.textContent", "the link's last error")
    assert "hidden" not in ui.text()
    http("DELETE", f"/policies/{ROOT}/f")
    ui.sees("No links")
    ui.click("Delete upstream up of vhost /")
    ui.click("Delete", "dialog[open]")
    ui.sees("The upstream up is deleted.")


# ------------------------------------------------------------------ the page itself


def test_every_page_fits_a_narrow_window_and_everything_has_a_name(ui: Chromium) -> None:
    size = {"width": NARROW_PX, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    ui.send("Emulation.setDeviceMetricsOverride", **size)
    try:
        for page in PAGES:
            go(ui, page)
            ui.until(REFUSED_NOTHING, f"all parts of {page} are there")
            ui.run("[...document.querySelectorAll('details')].forEach((one) => (one.open = true))")
            assert ui.run("document.documentElement.scrollWidth") <= NARROW_PX, page
            assert ui.run(UNLABELLED) == [], page
            assert ui.run("document.activeElement.tagName") == "H1", "the keyboard is at the page"
    finally:
        ui.send("Emulation.clearDeviceMetricsOverride")
    ui.run("window.location.hash = '#/none'")
    ui.sees("No such page")


WIDE_PX = 1_280
VISIBLE = """(labels) => [...document.querySelectorAll("th")]
  .filter((one) => labels.includes(one.innerText.replace(/ [▴▾]$/, "").trim()))
  .map((one) => Math.round(one.getBoundingClientRect().right))"""


def test_what_matters_of_a_queue_is_visible_at_1280_pixels_whatever_its_name(
    ui: Chromium, http: HttpClient
) -> None:
    name = "a-very-long-name-of-a-queue." * 9
    assert http("PUT", f"/queues/{ROOT}/{quoted(name)}", {}).status == 201
    size = {"width": WIDE_PX, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    ui.send("Emulation.setDeviceMetricsOverride", **size)
    try:
        go(ui, "queues")
        ui.sees(name)
        labels = ["State", "Ready", "Unacked", "Total", "Consumers", "Leader"]
        ends = ui.run(f"({VISIBLE})({json.dumps(labels)})")
        assert len(ends) == len(labels) and max(ends) <= WIDE_PX, ends
    finally:
        ui.send("Emulation.clearDeviceMetricsOverride")
        assert http("DELETE", f"/queues/{ROOT}/{quoted(name)}").status == 204


HEADLESS = """[...document.querySelectorAll("table:not(.u-legend)")].filter((one) => {
  const shown = one.caption.classList.contains("unseen")
    ? [...document.querySelectorAll("h2")].find((two) => two.innerText === one.caption.textContent)
    : one.caption;
  return !shown || shown.offsetHeight < 10 ||
    [...one.querySelectorAll("th")].some((cell) => !cell.innerText.trim());
}).map((one) => one.caption.textContent)"""


def test_every_table_and_column_has_a_visible_heading(ui: Chromium, http: HttpClient) -> None:
    value = {"pattern": "^none$", "definition": {"max-length": 1}, "apply-to": "queues"}
    assert http("PUT", f"/policies/{ROOT}/one", value).status == 201
    for page in PAGES:
        go(ui, page)
        ui.until(REFUSED_NOTHING, f"all parts of {page} are there")
        assert ui.run(HEADLESS) == [], page


def test_forms_and_buttons_that_the_users_tags_forbid_are_absent(
    browser: Chromium, http: HttpClient
) -> None:
    value = {"pattern": "^none$", "definition": {"max-length": 1}, "apply-to": "queues"}
    assert http("PUT", f"/policies/{ROOT}/one", value).status in (201, 204)
    add_user(http, "looker", "monitoring")
    add_user(http, "maker", "policymaker")
    forms = "[...document.querySelectorAll('[data-form]')].map((one) => one.dataset.form)"
    texts = "[...document.querySelectorAll('main button')].map((one) => one.textContent)"
    for user, policies in (("looker", []), ("maker", ["policies"])):
        log_in(browser, user, "pw")
        browser.sees("Cluster")
        assert browser.run(forms) == [], "definitions are an administrator's"
        assert "Export definitions" not in browser.run(texts)
        go(browser, "policies")
        assert browser.run(forms) == policies
        assert ("Delete" in browser.run(texts)) == bool(policies)
        go(browser, "shovels")
        assert browser.run(forms) == (["shovel"] if policies else [])
        go(browser, "queues")
        assert browser.run(forms) == ["add-queue"], "its permissions decide, not its tags"
        if user == "looker":
            go(browser, "nodes/node-1")
            assert "Drain" not in browser.run(texts) and "Forget" not in browser.run(texts)
        go(browser, "")
        browser.click("Log out")
        browser.until("document.title.startsWith('Log in')", "the page for the login")


@pytest.mark.long
def test_the_colours_are_the_systems_or_those_that_the_user_chooses(ui: Chromium) -> None:
    back = "getComputedStyle(document.body).backgroundColor"

    def choose(theme: str) -> str:
        ui.run(
            f"""(() => {{ const chosen = document.querySelector("#theme");
            chosen.value = "{theme}"; chosen.dispatchEvent(new Event("change")); }})()"""
        )
        ui.until(LOADED, "the page again")
        return str(ui.run(back))

    try:
        light, dark = choose("light"), choose("dark")
        assert light == "rgb(255, 255, 255)" != dark
        ui.reload()
        ui.sees("Cluster")
        assert ui.run(back) == dark and ui.run("document.querySelector('#theme').value") == "dark"
        assert choose("") in (light, dark)
    finally:
        ui.run("localStorage.clear()")


@pytest.mark.usefixtures("uplot")
def test_a_rate_is_the_last_point_of_its_chart(ui: Chromium, http: HttpClient) -> None:
    publish(http, "plain", "counted", 5)
    go(ui, "")
    published = """[...document.querySelectorAll("dt")]
      .find((one) => one.innerText === "Published").nextSibling.innerText"""
    drawn = f"(/Published ([0-9.]+)/.exec({DESCRIBED}[1]) || [])[1]"
    ui.until(f"{drawn} && Number.parseFloat({published}) === Number({drawn})", "they are the same")


# ------------------------------------------------------------------ faults


def test_a_node_out_of_reach_and_a_killed_leader_are_told_and_recover(
    cluster: LocalCluster, ui: Chromium, http: HttpClient
) -> None:
    assert http("PUT", f"/queues/{ROOT}/led", {}).status == 201
    publish(http, "led", "kept", 3)
    go(ui, "queues/%2F/led")
    fact(ui, "Ready", 3)
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    ui.send("Network.enable")
    ui.send("Network.emulateNetworkConditions", offline=True, **offline)
    ui.sees("The node does not answer")
    assert "led" in ui.text(), "what was known stays"
    ui.send("Network.emulateNetworkConditions", offline=False, **offline)
    ui.until("!document.body.innerText.includes('does not answer')", "it answers again")

    leader = http.get(f"/queues/{ROOT}/led")["leader"]
    if leader == "node-0":  # that the browser asks: another one is to be killed
        assert http("POST", "/nodes/node-0/drain").status in (200, 202)
        leader = eventually(
            lambda: (found := http.get(f"/queues/{ROOT}/led")["leader"]) != "node-0" and found,
            "another leads",
        )
        assert http("POST", "/nodes/node-0/revive").status in (200, 202)
    cluster.kill(leader)
    ui.sees(f"{leader} is down")
    ui.sees("running, 1 down")
    fact(ui, "Ready", 3)
    go(ui, f"nodes/{leader}")
    fact(ui, "State", "down")
    cluster.start(leader)
    fact(ui, "State", "running")
    ui.click("Drain", "main")
    ui.click("Drain", "dialog[open]")
    fact(ui, "State", "in maintenance")
    ui.click("Revive", "main")
    fact(ui, "State", "running")
