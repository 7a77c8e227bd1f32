"""Draw the pictures of the management UI again: `.venv/bin/python -m live.ui_picture` in tests/."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pika
from PIL import Image

from live.chromium import Chromium
from live.http_client import SETTINGS, api_address, http_client, quoted
from tools.film import COLOURS
from tools.structure import ROOT
from warren.local import LocalCluster

PICTURE = ROOT / "docs" / "images" / "management-ui.png"
SIZE = {"width": 1_000, "height": 560, "deviceScaleFactor": 1, "mobile": False}
QUEUES = {"invoices": 57, "mail": 0, "orders": 60, "orders.dead": 0, "payments": 23}
VHOST = quoted("/")
POISON = '{"order": 1047, "total": "12,50"}'
QUALITY = 60


def publish_dead(cluster: LocalCluster) -> None:
    """Have messages die: three are rejected, one fails as often as its queue permits."""
    at = pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].amqp_port)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"}
    given = {"x-queue-type": "quorum", "x-delivery-limit": 1, **dead}
    with pika.BlockingConnection(at) as connection:
        channel = connection.channel()
        channel.queue_declare("checkout", durable=True, arguments=given)
        said = pika.BasicProperties(content_type="application/json", headers={"region": "eu"})
        for body in ('{"order": 1044}', '{"order": 1045}', '{"order": 1046}', POISON):
            channel.basic_publish("", "checkout", body.encode(), said)
        for _ in range(3):
            channel.basic_reject(channel.basic_get("checkout")[0].delivery_tag, requeue=False)
        for _ in range(2):
            channel.basic_reject(channel.basic_get("checkout")[0].delivery_tag, requeue=True)


def film(browser: Chromium, frame: Any) -> None:
    """Find a poison message, see why, repair and redrive it, redrive the others."""
    look = "document.querySelector('form[data-form=browse] button')"
    browser.run("(location.hash = '#/queues/%2F/orders.dead/messages')")
    browser.sees("looked at")
    browser.submit("form[data-form=group]", by="reason,origin")
    browser.sees("These")
    frame("letters-1", "form[data-form=group]")
    browser.submit("form[data-form=browse]", reason="delivery_limit")
    browser.until(f"!{look}.disabled", "the group is shown")
    browser.run("(document.querySelector('.message').open = true)")
    frame("letters-2", ".message")
    browser.run("(document.querySelector('.message details').open = true)")
    browser.until("document.querySelector('.message textarea').value !== ''", "its body")
    repaired = POISON.replace('"12,50"', "12.50")
    browser.run(f"(document.querySelector('.message textarea').value = '{repaired}')")
    browser.click("Redrive as repaired")
    browser.sees("goes back with this body")
    frame("letters-3", ".message details")
    browser.click("Redrive as repaired", "dialog[open]")
    browser.sees("has begun")
    browser.submit("form[data-form=browse]", reason="rejected")
    browser.until(f"!{look}.disabled", "the others are shown")
    browser.submit("form[data-form=job]", action="redrive")
    browser.click("Begin", "dialog[open]")
    browser.run("(location.hash = '#/jobs')")
    browser.until("document.querySelectorAll('td button').length >= 4", "both can be undone")
    frame("letters-4", "h1")


def main() -> int:
    """Draw the page of the queues of a cluster of three."""
    with LocalCluster(nodes=3, settings=SETTINGS) as cluster, Chromium() as browser:
        http = http_client(cluster)
        policy = {"pattern": "^orders", "definition": {"max-length": 100_000}}
        http("PUT", f"/policies/{VHOST}/kept", policy)
        http("PUT", f"/queues/{VHOST}/sessions", {"arguments": {"x-queue-type": "classic"}})
        for name, count in QUEUES.items():
            http("PUT", f"/queues/{VHOST}/{name}", {})
            message = {"properties": {}, "routing_key": name, "payload_encoding": "string"}
            for number in range(count):
                body = {**message, "payload": f"{number}"}
                http("POST", f"/exchanges/{VHOST}/amq.default/publish", body)
        publish_dead(cluster)
        browser.send("Emulation.setDeviceMetricsOverride", **SIZE)
        browser.open(f"http://{api_address(cluster, 0)}/#/queues")
        browser.submit("form", user="guest", password="guest")
        rows = "document.querySelectorAll('tbody tr').length"
        browser.until(f"{rows} === {len(QUEUES) + 2}", "all queues")
        browser.run("document.activeElement.blur()")
        with tempfile.TemporaryDirectory() as place:
            drawn = Path(place) / "page.png"
            browser.picture(drawn)
            with Image.open(drawn) as page:
                page.convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)

            def frame(name: str, at: str) -> None:
                browser.run("document.activeElement.blur()")
                browser.run(f"document.querySelector({at!r}).scrollIntoView()")
                browser.picture(drawn)
                with Image.open(drawn) as page:
                    page.convert("RGB").save(PICTURE.with_name(f"{name}.webp"), quality=QUALITY)

            film(browser, frame)
    return 0


if __name__ == "__main__":
    sys.exit(main())
