"""The page of `docs/embed.md` and `examples/recorder.html`, in a browser, as pages of another origin."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect
from sensorium.actors.config.server import ListenConfig
from support.browser import CHROMIUM, SKIP, WAIT_MS, chromium, delayed, new_page
from support.server import Server, make_config, running_server

ROOT = Path(__file__).parents[2]
LIGHTS_FILE = ROOT / "examples" / "data" / "kitchen_lights.wav"
LIGHTS = "Set the kitchen lights to ninety percent."
(PAGE,) = re.findall(r"```html\n(.*?)```", (ROOT / "docs" / "embed.md").read_text(), re.DOTALL)
MAX_LINES = 30

pytestmark = [pytest.mark.microphone, pytest.mark.skipif(CHROMIUM is None, reason=SKIP)]
expect.set_options(timeout=WAIT_MS)


class Site(SimpleHTTPRequestHandler):
    """Somebody's site: the repository's files, the page of the document, and ephemeral keys."""

    server_url = ""
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}

    def do_GET(self) -> None:
        if self.path == "/":
            self._answer(PAGE.replace("https://speech.example.org", self.server_url), "text/html")
            return
        self.path = self.path.replace("/sensorium/", "/client/js/")
        super().do_GET()

    def do_POST(self) -> None:
        made = httpx.post(
            f"{self.server_url}/v1/realtime/client_secrets",
            headers={"Authorization": "Bearer alice"},
            json={"session": {"type": "transcription"}},
        )
        self._answer(str(made.json()["value"]), "text/plain")

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())


@contextmanager
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Site, directory=str(ROOT))) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{served.server_port}"
        finally:
            served.shutdown()
            thread.join()


@contextmanager
def embedded(folder: Path, *api_key: str) -> Iterator[tuple[Server, str, Page]]:
    """A server, a site of another origin, and a browser's page."""
    with site() as address:
        config = make_config(
            listen=ListenConfig(port=0, drain_s=5.0, api_key=api_key, allowed_origins=(address,))
        )
        with running_server(config) as server, chromium(delayed(LIGHTS_FILE, folder)) as browser:
            Site.server_url = server.url
            page = new_page(browser, width=800)
            page.set_default_timeout(WAIT_MS)
            yield server, address, page


def test_the_page_of_the_document_transcribes_with_an_ephemeral_key(tmp_path: Path) -> None:
    assert len(PAGE.splitlines()) <= MAX_LINES
    with embedded(tmp_path, "alice") as (server, address, page):
        page.goto(address)
        page.click("#button")
        expect(page.locator("#said")).to_have_text(LIGHTS)
        page.click("#button")
        server.wait_quiet()


def test_the_example_page_transcribes_a_recorder(tmp_path: Path) -> None:
    with embedded(tmp_path) as (server, address, page):
        page.goto(f"{address}/examples/recorder.html?server={server.url}")
        page.click("#button")
        expect(page.locator("#said p")).to_have_text(LIGHTS)
        page.click("#button")
        expect(page.locator("#button")).to_have_text("Speak")
        server.wait_quiet()
