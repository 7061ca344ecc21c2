"""What a server's log says first: where its page is, and a command to try.

`actors/server.py` logs it, `actors/commands.py` opens the page for `--open`.
"""

from __future__ import annotations

import logging
import webbrowser
from collections.abc import Iterator
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

from .http.console.routes import PAGE
from .http.service import Service

logger = logging.getLogger(__name__)

_EVERY_ADDRESS: Final = ("0.0.0.0", "::")


def first_steps(service: Service, url: str) -> Iterator[str]:
    """The lines, for a server that is ready at `url`."""
    near = near_url(url)
    if service.config.console:
        yield f"try it in a browser: {near}{PAGE}"
    key = ' -H "Authorization: Bearer $KEY"' if service.keys.are_needed else ""
    if service.transcribing:
        yield f"or transcribe a recording: curl {near}/v1/audio/transcriptions{key} -F file=@speech.wav"
    elif service.has_chat_template:
        body = """'{"messages": [{"role": "user", "content": "Hello"}]}'"""
        json = f'-H "Content-Type: application/json" -d {body}'
        yield f"or ask something: curl {near}/v1/chat/completions{key} {json}"


def near_url(url: str) -> str:
    """The address by which this machine's own browser reaches a server, which may listen on every address.

    Microphone and camera are given to pages of `localhost`, not to those of other addresses.
    """
    parts = urlsplit(url)
    return f"http://localhost:{parts.port}" if parts.hostname in _EVERY_ADDRESS else url


def open_page(url: str) -> Thread:
    """Open the page in this machine's browser, in a thread that nothing waits for.

    Where there is no browser the log says where the page is.
    """
    page = f"{near_url(url)}{PAGE}"

    def open_it() -> None:
        if not webbrowser.open(page):
            logger.warning("no browser could be opened; the page is %s", page)

    thread = Thread(target=open_it, name="open the console", daemon=True)
    thread.start()
    return thread
