"""How soon the console shows text, what an open page costs other sessions, and how its memory grows.

    python examples/benchmarks/console_latency.py [--measure first-text] [--rounds 20] [-- --max-sessions 64]

Chromium has to be installed; its microphone is a file. A server is started with the options after `--`.

`first-text`: in turn, the same sentence is recorded by the page as PCM and as Opus (MediaRecorder), and
sent by the SDK at the pace of speech. The latency is that from the first loud sample, as the client has it,
to the first text: in the page from an analyser of the microphone's stream to a change of the document, in the
SDK from the time at which the sample would be spoken to the event. No two rounds have the same samples, so
that no cache of the server answers.

`finals`: sessions of the SDK speak at the pace of speech: alone, beside a page that shows the Server view (it
reads `/metrics` every two seconds), and beside a page that listens, which is one more session. There the
browser has niceness 19, since it stands for another machine (Linux).

`heap`: a page listens to a conversation again and again; its heap is read after a collection each minute.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import anyio
import numpy as np
import soxr
from bench_lanes import TALK, serving
from playwright.async_api import Browser, Page, async_playwright
from sensorium.client import AsyncClient
from sensorium.client.audio import Audio, Pacer, read_wav, silence, varied, wav_bytes
from sensorium.client.bench import realtime
from sensorium.client.bench.realtime import RealtimePlan, RealtimeRound, Recording
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.realtime.events import Delta

SENTENCE: Final = TALK.with_name("kitchen_lights.wav")
LEAD_S: Final = 1.0
"""Silence in front of the sentence: a browser takes a while to open its microphone."""
LOUD: Final = 0.02
"""Of full scale; the silence in front is below a tenth of it."""
PAGE_RATE: Final = 24_000
"""Samples per second that the page sends, and so the SDK here."""
CHUNK_MS: Final = 40
"""As the page cuts it."""
WAIT_MS: Final = 120_000
MEASURES: Final = ("first-text", "finals", "heap")
_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--use-fake-device-for-media-stream",
)
_WATCH: Final = """loud => {
  globalThis.seen = { loudAt: null, textAt: null };
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (constraints) => {
    const stream = await open(constraints);
    const context = new AudioContext();
    const analyser = context.createAnalyser();
    context.createMediaStreamSource(stream).connect(analyser);
    const samples = new Float32Array(analyser.fftSize);
    const timer = setInterval(() => {
      analyser.getFloatTimeDomainData(samples);
      if (!samples.some((each) => Math.abs(each) > loud)) return;
      seen.loudAt = performance.now();
      clearInterval(timer);
    }, 4);
    return stream;
  };
  const changes = new MutationObserver(() => (seen.textAt ??= performance.now()));
  const openTurns = document.getElementById("live-open");
  changes.observe(openTurns, { childList: true, subtree: true, characterData: true });
}"""


def chromium() -> str:
    """Where it is."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise SystemExit("Chromium is not installed: apt-get install chromium")
    return found


def nice_chromium(folder: Path) -> str:
    """A program that starts it at niceness 19, within its session and among sessions (autogroup)."""
    program = folder / "chromium"
    program.write_text("#!/bin/sh\necho 19 > /proc/self/autogroup\nexec nice -n 19 " + chromium() + ' "$@"\n')
    program.chmod(0o755)
    return str(program)


@asynccontextmanager
async def browser_with(
    microphone: Path, *, program: str | None = None, again: bool = False
) -> AsyncIterator[Browser]:
    """Headless Chromium whose microphone plays a WAV file once per opening, or `again` and again."""
    found = program or chromium()
    capture = f"--use-file-for-fake-audio-capture={microphone}{'' if again else '%noloop'}"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=[*_ARGUMENTS, capture])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def page_at(browser: Browser, url: str, view: str) -> AsyncIterator[Page]:
    """The console with a view open, connected."""
    context = await browser.new_context(permissions=["microphone"])
    page = await context.new_page()
    page.set_default_timeout(WAIT_MS)
    await page.goto(f"{url}/console#{view}")
    await page.locator(".status.ok").wait_for()
    try:
        yield page
    finally:
        await context.close()


def sentence(seed: int) -> Audio:
    """The sentence behind its silence, with a noise of its own that is not heard."""
    spoken = read_wav(SENTENCE)
    return varied(Audio(silence(LEAD_S, spoken.rate) + spoken.pcm, spoken.rate), seed)


def as_the_page_sends(audio: Audio) -> Audio:
    """The same at the page's rate."""
    samples = soxr.resample(np.frombuffer(audio.pcm, np.int16), audio.rate, PAGE_RATE)
    return Audio(samples.astype(np.int16).tobytes(), PAGE_RATE)


async def first_text_of_page(browser: Browser, url: str, recording: str) -> float:
    """Seconds from the first loud sample to text in the document."""
    async with page_at(browser, url, "live") as page:
        await page.evaluate(_WATCH, LOUD)
        await page.select_option("#live-recording", recording)
        await page.click("#live-toggle")
        await page.locator("#live-done .turn").wait_for()
        seen = await page.evaluate("seen")
        return float(seen["textAt"] - seen["loudAt"]) / 1000


async def first_text_of_sdk(client: AsyncClient, audio: Audio) -> float:
    """Seconds from the first loud sample to the first delta."""
    loud_at = int(np.argmax(np.abs(np.frombuffer(audio.pcm, np.int16)) > LOUD * 32768)) / audio.rate
    began = None

    async def spoken() -> AsyncIterator[bytes]:
        nonlocal began
        began = anyio.current_time()
        pacer = Pacer(start=began)
        for chunk in audio.chunks(CHUNK_MS):
            await anyio.sleep_until(pacer.next_time(len(chunk) / audio.format.bytes_per_second))
            yield chunk

    async with client.realtime(sample_rate=audio.rate) as session:
        async for event in session.transcribe(spoken()):
            if isinstance(event, Delta) and event.delta:
                assert began is not None
                return anyio.current_time() - began - loud_at
    raise SystemExit("the SDK received no text")


async def measure_first_text(url: str, num_rounds: int, folder: Path) -> None:
    """Median, fastest and slowest of the three clients."""
    found: dict[str, list[float]] = {"SDK": [], "page, PCM": [], "page, Opus": []}
    microphone = folder / "microphone.wav"
    microphone.write_bytes(wav_bytes(sentence(0)))
    seeds = iter(range(1, 10_000))
    async with AsyncClient(url) as client, browser_with(microphone) as browser:
        await first_text_of_sdk(
            client, as_the_page_sends(sentence(next(seeds)))
        )  # the first ones are not counted
        await first_text_of_page(browser, url, "opus")
        for number in range(num_rounds):
            print(f"round {number + 1} of {num_rounds}", file=sys.stderr)
            found["SDK"].append(await first_text_of_sdk(client, as_the_page_sends(sentence(next(seeds)))))
            for recording, name in (("pcm", "page, PCM"), ("opus", "page, Opus")):
                microphone.write_bytes(wav_bytes(sentence(next(seeds))))
                found[name].append(await first_text_of_page(browser, url, recording))
    base = median(found["SDK"])
    rows = [
        [name, *(f"{1000 * each:.0f}" for each in (median(times), min(times), max(times))), over(times, base)]
        for name, times in found.items()
    ]
    print(table(["first text in ms", "median", "fastest", "slowest", "beside the SDK"], rows))


def over(times: list[float], base: float) -> str:
    """A median beside another one: the ratio and the difference."""
    return f"{median(times) / base:.2f} ({1000 * (median(times) - base):+.0f} ms)"


async def measure_finals(url: str, num_rounds: int, num_streams: int, seconds: float, folder: Path) -> None:
    """Latencies of finals alone and beside the page, in turn."""
    plan = RealtimePlan(Recording(read_wav(TALK)), seconds)
    found = {name: RealtimeRound(num_streams) for name in ("alone", "Server view open", "page listens")}
    seeds = iter(range(10_000))
    program = nice_chromium(folder)
    async with AsyncClient(url) as client, browser_with(TALK, program=program, again=True) as browser:
        await realtime.warm_up(client, plan)
        speak = partial(realtime.run_round, client, plan, num_streams)
        for number in range(num_rounds):
            print(f"round {number + 1} of {num_rounds}", file=sys.stderr)
            found["alone"].add(await speak(seed=next(seeds)))
            async with page_at(browser, url, "server"):
                found["Server view open"].add(await speak(seed=next(seeds)))
            async with page_at(browser, url, "live") as page:
                await page.click("#live-toggle")
                found["page listens"].add(await speak(seed=next(seeds)))
    print(
        table(["finals in ms", "turns", "p50", "p95", "p95 beside alone", "errors"], list(final_rows(found)))
    )


def final_rows(found: dict[str, RealtimeRound]) -> Iterator[list[str]]:
    """A line for each."""
    base = percentile(found["alone"].final_s, 95)
    for name, each in found.items():
        p50, p95 = (percentile(each.final_s, percent) for percent in (50, 95))
        num_errors = str(len(each.errors) + each.num_drops)
        yield [
            name,
            str(len(each.final_s)),
            f"{1000 * p50:.0f}",
            f"{1000 * p95:.0f}",
            f"{p95 / base:.2f}",
            num_errors,
        ]


async def measure_heap(url: str, num_minutes: int) -> None:
    """The page's heap after each minute of listening."""
    async with browser_with(TALK, again=True) as browser, page_at(browser, url, "live") as page:
        session = await page.context.new_cdp_session(page)
        await page.click("#live-toggle")
        rows = []
        for minute in range(1, num_minutes + 1):
            await anyio.sleep(60)
            await session.send("HeapProfiler.collectGarbage")
            heap = await session.send("Runtime.getHeapUsage")
            nodes = await page.evaluate("document.querySelectorAll('#live-transcript *').length")
            turns = await page.locator("#live-done .turn").count()
            rows.append([str(minute), f"{heap['usedSize'] / 1e6:.2f}", str(nodes), str(turns)])
            print(" ".join(rows[-1]), file=sys.stderr)
    print(table(["minute", "heap in MB", "elements", "turns that are elements"], rows))


def main() -> None:
    """Measure what was chosen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", choices=MEASURES, action="append", help="all of them if not given")
    parser.add_argument("--rounds", type=int, default=20, help="of first-text; finals have a fifth as many")
    parser.add_argument("--streams", type=int, default=12, help="sessions of finals")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of speech in a round of finals, at least"
    )
    parser.add_argument("--minutes", type=int, default=10, help="of heap")
    parser.add_argument("serve", nargs="*", help="options of the server, after --")
    options = parser.parse_args()
    chosen = options.measure or MEASURES
    with serving(options.serve, is_silent=True) as (url, _), tempfile.TemporaryDirectory() as folder:
        if "first-text" in chosen:
            anyio.run(measure_first_text, url, options.rounds, Path(folder))
        if "finals" in chosen:
            num_rounds = max(1, options.rounds // 5)
            anyio.run(measure_finals, url, num_rounds, options.streams, options.seconds, Path(folder))
        if "heap" in chosen:
            anyio.run(measure_heap, url, options.minutes)


if __name__ == "__main__":
    main()
