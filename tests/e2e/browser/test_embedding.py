"""The page of `docs/embed.md` and `examples/recorder.html`, in a browser, as pages of another origin."""

from __future__ import annotations

from playwright.sync_api import Browser, expect
from support.browser import LIGHTS, opened
from support.embedding_site import PAGE, EmbeddingSite
from support.server import Server

MAX_LINES = 30


def test_pages_of_another_origin_transcribe(
    console: Server, keyed: Server, browser: Browser, other_site: EmbeddingSite
) -> None:
    """The document's with PCM and an ephemeral key; the example's with a recorder, at the same time.

    Neither has an icon: that request fails.
    """
    assert len(PAGE.splitlines()) <= MAX_LINES
    other_site.server_url = keyed.url
    example = f"{other_site.url}/examples/recorder.html?server={console.url}"
    with (
        opened(browser, other_site.url, connects_to=keyed.url, allows_failures=True) as document_page,
        opened(browser, example, connects_to=console.url, allows_failures=True) as example_page,
    ):
        for page in (document_page, example_page):
            page.click("#button")
        expect(document_page.locator("#said")).to_have_text(LIGHTS)
        expect(example_page.locator("#said p")).to_have_text(LIGHTS)
        for page in (document_page, example_page):
            page.click("#button")
        expect(example_page.locator("#button")).to_have_text("Speak")
    keyed.wait_quiet()
    console.wait_quiet()
