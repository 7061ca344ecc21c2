"""The console in a real browser, whose microphone says a sentence and whose camera shows three shapes."""

from __future__ import annotations

import base64
import json
import re

import pytest
from playwright.sync_api import Browser, Page, expect
from support.browser import DATA, LIGHTS, opened
from support.cutting_proxy import cutting_proxy
from support.server import Server

SHAPES = re.compile("red circle.*yellow star.*blue square")
FULL = "<style>* { margin: 0 } img { width: 100vw; height: 100vh }</style>"
MAX_TRANSCRIPT_NODES = 500


def ready(page: Page) -> None:
    expect(page.locator("#status")).to_have_text("Connected")


def finished_turns(page: Page) -> list[str]:
    return page.locator("#live-done .turn > span").all_inner_texts()


def ask(page: Page, question: str) -> None:
    page.fill("#chat-text", question)
    page.press("#chat-text", "Enter")


def test_speech_becomes_text_and_subtitles_in_two_tabs_at_once(console: Server, browser: Browser) -> None:
    """One records PCM, the other one Opus."""
    with (
        opened(browser, f"{console.url}/") as pcm_page,
        opened(browser, f"{console.url}/console") as opus_page,
    ):
        assert pcm_page.url == f"{console.url}/console"
        pages = {"pcm": pcm_page, "opus": opus_page}
        for recording, page in pages.items():
            ready(page)
            page.select_option("#live-recording", recording)
            page.click("#live-toggle")
        for page in pages.values():
            expect(page.locator("#live-done .turn")).to_have_count(1)
            assert finished_turns(page) == [LIGHTS]
            expect(page.locator("#live-language")).to_have_text("English")
            expect(page.locator("#live-first")).to_have_text(re.compile(r"\d\.\d\d s"))
            expect(page.locator("#live-final")).to_have_text(re.compile(r"\d\.\d\d s"))
            with page.expect_download() as download:
                page.click("#view-live [data-save=srt]")
            cues = download.value.path().read_text()
            assert re.match(r"1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\n", cues), cues
            assert LIGHTS in cues
            with page.expect_download() as download:
                page.click("#view-live [data-save=txt]")
            assert download.value.path().read_text() == f"{LIGHTS}\n"
            page.click("#live-toggle")
            expect(page.locator("#live-state")).to_have_text("Press Start and speak.")
            assert finished_turns(page) == [LIGHTS]
    console.wait_quiet()


def test_a_cut_connection_is_resumed_in_the_middle_of_a_sentence(console: Server, browser: Browser) -> None:
    with (
        cutting_proxy(console.port) as proxy,
        opened(browser, f"{proxy.url}/console", allows_failures=True) as page,
    ):
        ready(page)
        page.click("#live-toggle")
        expect(page.locator("#live-open .turn")).to_have_count(1)
        proxy.refusing = True
        proxy.cut()
        expect(page.locator("#live-state")).to_have_text(re.compile("The connection is lost"))
        proxy.refusing = False
        expect(page.locator("#live-state")).to_have_text("The connection is back. Nothing was lost.")
        expect(page.locator("#live-done .turn")).to_have_count(1)
        assert finished_turns(page) == [LIGHTS]
    console.wait_quiet()


def test_a_server_that_is_gone_is_told_and_found_again(console: Server, browser: Browser) -> None:
    with (
        cutting_proxy(console.port) as proxy,
        opened(browser, f"{proxy.url}/console#files", allows_failures=True) as page,
    ):
        ready(page)
        proxy.refusing = True
        proxy.cut()
        page.set_input_files("#files-input", DATA / "kitchen_lights.wav")
        expect(page.locator("#notice")).to_contain_text("does not answer")
        expect(page.locator("#status")).to_have_text("No answer. Trying again…")
        expect(page.locator(".job p.wrong")).to_contain_text("No server answers")
        proxy.refusing = False
        ready(page)
        expect(page.locator("#notice")).to_be_hidden()


def test_a_file_becomes_text_whose_words_are_marked_and_subtitles(console: Server, browser: Browser) -> None:
    with opened(browser, f"{console.url}/console#files") as page:
        ready(page)
        page.set_input_files("#files-input", DATA / "kitchen_lights.wav")
        with page.expect_download() as download:
            page.locator(".job").get_by_text("VTT").click()
        assert download.value.suggested_filename == "kitchen_lights.vtt"
        written = download.value.path().read_text()
        assert written.startswith("WEBVTT\n\n00:00:0")
        assert LIGHTS in written
        expect(page.locator(".words")).to_have_text(LIGHTS)
        page.locator(".job audio").evaluate("player => { player.currentTime = 1.5 }")
        marked = "() => [...CSS.highlights.get('spoken') ?? []].map(String).join()"
        page.wait_for_timeout(0)
        expect(page.locator(".job audio")).to_have_js_property("seeking", value=False)
        assert page.evaluate(marked) in LIGHTS.split()
    console.wait_quiet()


def test_a_picture_is_asked_about(console: Server, browser: Browser) -> None:
    with opened(browser, f"{console.url}/console#chat") as page:
        ready(page)
        page.set_input_files("#chat-file", DATA / "shapes.png")
        expect(page.locator("#chat-attachments li")).to_have_count(1)
        ask(page, "What is where?")
        expect(page.locator(".message:not(.user) .body")).to_have_text(SHAPES)
        page.click("text=Regenerate")
        expect(page.locator(".message:not(.user) .body")).to_have_text(SHAPES)
        expect(page.locator(".message")).to_have_count(2)
        page.set_input_files("#chat-file", DATA / "kitchen_lights.wav")
        expect(page.locator(".message.wrong")).to_contain_text("takes no recordings. Choose tiny-qwen3-asr")
        for language in ("curl", "openai"):
            page.locator("#chat-code").get_by_text(language, exact=True).click()
            expect(page.locator("#chat-code pre")).to_contain_text("What is where?")
    console.wait_quiet()


@pytest.mark.parametrize("kind", ["camera", "screen"])
def test_what_a_camera_or_the_screen_shows_is_asked_about(
    console: Server, browser: Browser, kind: str
) -> None:
    picture = base64.b64encode((DATA / "shapes.png").read_bytes()).decode()
    with opened(browser, f"{console.url}/console#chat") as page:
        ready(page)
        tab = page.context.new_page()
        tab.set_content(f"<title>shapes</title>{FULL}<img src='data:image/png;base64,{picture}'>")
        page.bring_to_front()
        page.click(f"#chat-{kind}")
        expect(page.locator("#chat-watching")).to_contain_text("watches")
        ask(page, "What is where?")
        expect(page.locator(".message:not(.user) .body")).to_have_text(SHAPES)
        page.click(f"#chat-{kind}")
        expect(page.locator("#chat-preview")).to_be_hidden()
    console.wait_quiet()


def test_a_key_is_asked_for_and_a_wrong_one_explained(keyed: Server, browser: Browser) -> None:
    with opened(browser, f"{keyed.url}/console", allows_failures=True) as page:
        expect(page.locator("#key-text")).to_contain_text("--api-key-file")
        page.fill("#key-input", "bob")
        page.press("#key-input", "Enter")
        expect(page.locator("#key-text")).to_contain_text("The API key is not accepted.")
        page.fill("#key-input", "alice")
        page.click("text=Use key")
        ready(page)
        page.click("#live-toggle")
        expect(page.locator("#live-done .turn")).to_have_count(1)
        stored = "() => JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
        assert "alice" not in page.evaluate(stored)
    keyed.wait_quiet()


def test_a_page_without_tls_says_why_there_is_no_microphone(keyed: Server, browser: Browser) -> None:
    with opened(browser, f"http://speech.test:{keyed.port}/console", allows_failures=True) as page:
        page.fill("#key-input", "alice")
        page.press("#key-input", "Enter")
        ready(page)
        expect(page.locator("#live-state")).to_contain_text(f"ssh -L {keyed.port}:127.0.0.1:{keyed.port}")
        expect(page.locator("#live-toggle")).to_be_disabled()
        page.click("nav a[href='#chat']")
        expect(page.locator("#chat-camera")).to_be_hidden()


def test_a_long_transcript_stays_few_nodes_and_whole_in_its_export(console: Server, browser: Browser) -> None:
    fill = """async () => {
      const { Transcript } = await import("/console/transcript.js");
      const at = (id) => document.getElementById(id);
      const made = new Transcript(at("live-transcript"), at("live-done"), at("live-open"));
      for (let turn = 0; turn < 1000; turn++) {
        made.partial("id", turn, "one wrong word of several ");
        const text = `turn ${turn} one right word of several`;
        made.final("id", { start: turn, end: turn + 1, text, words: [] });
      }
      const nodes = document.createTreeWalker(at("live-transcript"), NodeFilter.SHOW_ALL);
      let num = 0;
      while (nodes.nextNode()) num += 1;
      return [num, at("live-done").textContent.match(/turn \\d+/g).length, made.srt.match(/-->/g).length];
    }"""
    with opened(browser, f"{console.url}/console") as page:
        ready(page)
        num_nodes, num_shown, num_cues = page.evaluate(fill)
    assert num_nodes <= MAX_TRANSCRIPT_NODES
    assert (num_shown, num_cues) == (1000, 1000)


@pytest.mark.parametrize("width", [360, 1440])
def test_no_view_is_wider_than_the_window(console: Server, browser: Browser, width: int) -> None:
    with opened(browser, f"{console.url}/console", width=width) as page:
        ready(page)
        for view in ("live", "files", "chat", "server"):
            page.click(f"nav a[href='#{view}']")
            expect(page.locator(f"#view-{view}")).to_be_visible()
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width, view
        expect(page.locator("#server-models tr")).to_have_count(2)
        expect(page.locator(".plot").last.locator("strong")).to_have_text(re.compile("[MG]B"))


def test_the_lines_of_code_have_what_was_chosen(keyed: Server, browser: Browser) -> None:
    """`test_console_lines.py` runs them."""
    with opened(browser, f"{keyed.url}/console", allows_failures=True) as page:
        page.fill("#key-input", "alice")
        page.press("#key-input", "Enter")
        ready(page)
        page.select_option("#live-language-choice", "de")
        for view in ("live", "files", "chat", "server"):
            page.click(f"nav a[href='#{view}']")
            lines = page.locator(f"#{view}-code pre")
            for language in ("curl", "Python", "openai", "JavaScript"):
                page.locator(f"#{view}-code").get_by_text(language, exact=True).click()
                expect(lines).to_contain_text(keyed.url)
                expect(lines).to_contain_text("KEY")
                if view == "live":
                    expect(lines).to_contain_text(re.compile('"de"|--language de'))


def test_reasoning_is_folded_and_calls_and_code_are_shown(console: Server, browser: Browser) -> None:
    """What the embedded models do not write, as a server streams it."""
    call = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": '{"city": '}}
    rest = {"index": 0, "function": {"arguments": '"Wien"}'}}
    deltas: list[dict[str, object]] = [
        {"reasoning_content": "They ask "},
        {"reasoning_content": "for code."},
        {"content": "Here <b>it</b> is:\n``"},
        {"content": "`python\nprint(1)\n"},
        {"content": "```\nDone."},
        {"tool_calls": [call]},
        {"tool_calls": [rest]},
    ]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    with opened(browser, f"{console.url}/console#chat") as page:
        ready(page)
        page.route(
            "**/v1/chat/completions",
            lambda route: route.fulfill(content_type="text/event-stream", body=stream),
        )
        ask(page, "Write code.")
        answer = page.locator(".message:not(.user)")
        expect(answer.locator(".meta button")).to_be_visible()
        expect(answer.locator("details")).not_to_have_attribute("open", "")
        expect(answer.locator("details")).to_have_text("ReasoningThey ask for code.")
        expect(answer.locator("pre code")).to_have_text("print(1)\n")
        expect(answer.get_by_label("Tool call")).to_have_text('weather({"city": "Wien"})')
        expect(answer.locator(".body")).to_contain_text("Here <b>it</b> is:")
        expect(answer.locator(".body")).to_contain_text("Done.")
