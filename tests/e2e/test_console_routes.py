"""The console's files as a server answers them, without a browser."""

from __future__ import annotations

import dataclasses
import re

import httpx
from support.server import Server, make_config, running_server


def test_the_page_is_served_to_browsers_with_its_policy_and_no_key(keyed_server: Server) -> None:
    html = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    front = httpx.get(keyed_server.url, headers=html)
    assert (front.status_code, front.headers["location"]) == (307, "console")
    assert httpx.get(keyed_server.url).status_code == 401
    page = httpx.get(f"{keyed_server.url}/console")
    assert page.status_code == 200
    assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=|https?://", page.text)
    for name in re.findall(r'(?:href|src)="(console/[^"]+)"', page.text):
        assert httpx.get(f"{keyed_server.url}/{name}").status_code == 200, name
    again = httpx.get(f"{keyed_server.url}/console", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.get(f"{keyed_server.url}/console/sdk/../../secret").status_code in (401, 404)
    absent = httpx.get(f"{keyed_server.url}/console/absent.js")
    assert (absent.status_code, absent.json()["error"]["code"]) == (404, "not_found")
    foreign = httpx.get(f"{keyed_server.url}/console", headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 403
    named = httpx.get(f"{keyed_server.url}/console", headers={"Host": "evil.example"})
    assert named.json()["error"]["code"] == "host_not_allowed"


def test_a_server_without_the_page_answers_as_if_there_were_none() -> None:
    html = {"Accept": "text/html"}
    with running_server(dataclasses.replace(make_config(), console=False)) as server:
        for path in ("/", "/console", "/console/app.js"):
            assert httpx.get(f"{server.url}{path}", headers=html).status_code == 404, path
        assert "/console" not in httpx.get(f"{server.url}/openapi.json").json()["paths"]
