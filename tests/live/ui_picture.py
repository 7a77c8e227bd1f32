"""Draw docs/images/management-ui.png again: `.venv/bin/python -m live.ui_picture` in tests/."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

from live.chromium import Chromium
from live.http_client import SETTINGS, api_address, http_client, quoted
from tools.film import COLOURS
from tools.structure import ROOT
from warren.local import LocalCluster

PICTURE = ROOT / "docs" / "images" / "management-ui.png"
SIZE = {"width": 1_000, "height": 560, "deviceScaleFactor": 1, "mobile": False}
QUEUES = {"invoices": 57, "mail": 0, "orders": 60, "orders.dead": 4, "payments": 23}
VHOST = quoted("/")


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
        browser.send("Emulation.setDeviceMetricsOverride", **SIZE)
        browser.open(f"http://{api_address(cluster, 0)}/#/queues")
        browser.submit("form", user="guest", password="guest")
        rows = "document.querySelectorAll('tbody tr').length"
        browser.until(f"{rows} === {len(QUEUES) + 1}", "all queues")
        browser.run("document.activeElement.blur()")
        with tempfile.TemporaryDirectory() as place:
            drawn = Path(place) / "page.png"
            browser.picture(drawn)
            with Image.open(drawn) as page:
                page.convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
