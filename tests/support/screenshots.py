"""Makes the pictures of the console in the documents: `python -m support.screenshots` in `tests/`.

A server of the embedded models is started; the microphone says three sentences. `--folder` is where they go.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

from .browser import chromium, new_page
from .command_line import serving

ROOT: Final = Path(__file__).parents[2]
DATA: Final = ROOT / "examples" / "data"
_SPEECH_MS: Final = 15_500


def live(page: Page) -> None:
    """Speak for a while, and stop in the middle of a sentence."""
    page.click("#live-toggle")
    page.wait_for_timeout(_SPEECH_MS)


def files(page: Page) -> None:
    """A transcribed recording, a word of which is played."""
    page.set_input_files("#files-input", DATA / "conversation.wav")
    page.locator(".job .toolbar").wait_for()
    page.locator(".job audio").evaluate("player => { player.currentTime = 4.2 }")
    page.wait_for_timeout(500)


def chat(page: Page) -> None:
    """A picture, a question and the answer."""
    page.set_input_files("#chat-file", DATA / "shapes.png")
    page.fill("#chat-text", "What is where?")
    page.press("#chat-text", "Enter")
    page.locator(".message .meta button").wait_for()


def server(page: Page) -> None:
    """Half a minute of a server that was used before."""
    page.wait_for_timeout(30_000)


VIEWS: Final = {"live": live, "files": files, "chat": chat, "server": server}


def main() -> None:
    """Write a picture of each view, and of the first one in the dark and on a phone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--view", choices=VIEWS, action="append")
    folder, views = (options := parser.parse_args()).folder, options.view or list(VIEWS)
    folder.mkdir(parents=True, exist_ok=True)
    with serving("--port", "0") as (_, url), chromium(DATA / "conversation.wav") as browser:
        kinds = [(view, 1200, "light") for view in views] + [("live", 1200, "dark"), ("live", 390, "light")]
        for view, width, scheme in kinds:
            page = new_page(browser, width=width, height=800, dark=scheme == "dark")
            page.goto(f"{url}/console#{view}")
            page.locator(".status.ok").wait_for()
            VIEWS[view](page)
            end = "" if (width, scheme) == (1200, "light") else f"-{'dark' if scheme == 'dark' else 'phone'}"
            page.screenshot(path=folder / f"console-{view}{end}.png")
            page.context.close()


if __name__ == "__main__":
    main()
