"""A web site of another origin than the server, with the page of `docs/embed.md` and the repository's files.

`server_url` is set before the page is requested: the server is started with the site's address as an allowed
origin.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import httpx

ROOT: Final = Path(__file__).parents[2]
API_KEY: Final = "alice"
"""What the site makes ephemeral keys from."""
(PAGE,) = re.findall(r"```html\n(.*?)```", (ROOT / "docs" / "embed.md").read_text(), re.DOTALL)


class EmbeddingSite(ThreadingHTTPServer):
    """The page at `/`, an ephemeral key for each POST, `client/js` at `/sensorium/`, all other files."""

    server_url: str = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """The site's origin."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(SimpleHTTPRequestHandler):
    server: EmbeddingSite
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments, directory=str(ROOT))  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path == "/":
            self._answer(PAGE.replace("https://speech.example.org", self.server.server_url), "text/html")
            return
        self.path = self.path.replace("/sensorium/", "/client/js/")
        super().do_GET()

    def do_POST(self) -> None:
        made = httpx.post(
            f"{self.server.server_url}/v1/realtime/client_secrets",
            headers={"Authorization": f"Bearer {API_KEY}"},
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
def embedding_site() -> Iterator[EmbeddingSite]:
    """A running site."""
    with EmbeddingSite() as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            yield served
        finally:
            served.shutdown()
            thread.join()
