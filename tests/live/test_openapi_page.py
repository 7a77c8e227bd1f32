"""The page of the OpenAPI document in a browser, which loads nothing from elsewhere."""

from __future__ import annotations

import os
import shutil

import pytest

from live.chromium import PROGRAM, Chromium
from live.conftest import STRICT
from live.http_client import SETTINGS, api_address
from warren.local import LocalCluster

pytestmark = pytest.mark.live


def test_requests_are_found_with_bodies_and_answers() -> None:
    if shutil.which(PROGRAM) is None:
        assert STRICT not in os.environ, "no Chromium: apt-get install chromium"
        pytest.skip("no Chromium")
    with LocalCluster(nodes=1, settings=SETTINGS) as cluster, Chromium() as browser:
        browser.open(f"http://{api_address(cluster, 0)}/ui/reference.html")
        browser.until("!!document.querySelector('#user')", "the login")
        browser.submit("form", user="guest", password="wrong")
        browser.sees("Login refused: user or password is wrong")
        browser.submit("form", user="guest", password="guest")
        browser.sees("PUT /api/queues/{vhost}/{queue}")
        shown = "[...document.querySelectorAll('details')].filter((one) => !one.hidden)"
        assert browser.run(f"{shown}.length") > 150
        browser.run(
            """(() => { const filter = document.querySelector("#filter");
            filter.value = "put queues {queue}";
            filter.dispatchEvent(new Event("input")); })()"""
        )
        assert browser.run(f"{shown}.length") == 1
        browser.run(f"{shown}[0].open = true")
        text = browser.text()
        for said in ("durable?: boolean", "Declare a queue", "4XX: refused", "reason: any value"):
            assert said in text, said
        browser.reload()
        browser.sees("Warren HTTP API")
        assert browser.problems == []
