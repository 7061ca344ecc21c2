"""What `make demo` shows: a spoken conversation in three languages becomes text while it is being spoken.

`python examples/demo.py` starts a server with the embedded models and stops it again; with a URL it uses a
server that runs already. The audio goes through the SDK at the pace it was spoken; every number is measured
here, at the client, except the work, which the engine counts and shows at `/metrics`. Then `demo_vision.py`
shows pictures to the model that looks.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo_vision import show
from sensorium.client import Client, Completed, Delta, ErrorEvent, Failed, SDKError
from sensorium.client.audio import Audio, read_wav
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile, word_errors
from sensorium.client.bench.turns import SpokenTurn, Turn, TurnLog, read_spoken_turns
from sensorium.client.metrics import work_between
from sensorium.client.terminal import LiveText, timestamp

RECORDING = Path(__file__).parent / "data" / "conversation.wav"


def demo(url: str) -> int:
    """Stream the recorded conversation to a server and show what comes back, then pictures.

    0 if every turn was heard and every answer about a picture is right.
    """
    audio = read_wav(RECORDING)
    spoken = read_spoken_turns(RECORDING.with_suffix(".json"))
    live = LiveText()
    with Client(url) as client:
        model = able(client, "transcribe")
        live.line(
            f"A conversation of {len(spoken)} turns in English, Spanish and German ({audio.duration_s:.0f} s)"
        )
        live.line(f"goes to {model} at {url} at the pace it is spoken. Growing text is what a")
        live.line("listener reads while the person still speaks; it is never taken back.\n")
        before = client.metrics()
        log = converse(client, audio, spoken, live)
        work = work_between(before, client.metrics(), audio.duration_s)
        live.line(summary(log, spoken))
        if work is not None:
            live.line()
            rows = [[name, f"{value:.3g}"] for name, value in work.per_audio_s.items()]
            live.line(table(["work per second of audio", "counted by the engine"], rows))
        answers = show(client, live, able(client, "chat"))
    missed = [turn for turn in spoken if not log.turns_of(turn)]
    wrong = [answer for answer in answers if not answer.is_right]
    return 1 if missed or wrong else 0


def able(client: Client, ability: str) -> str:
    """The name of the server's first model that can do this."""
    found = next((model.id for model in client.models() if ability in model.abilities), None)
    if found is None:
        raise SystemExit(f"demo: no model of this server has the ability {ability!r}")
    return found


def converse(client: Client, audio: Audio, spoken: list[SpokenTurn], live: LiveText) -> TurnLog:
    """The live session itself."""
    log = TurnLog()
    with client.realtime(sample_rate=audio.rate) as session:
        log.configure(session.updated)
        log.audio_start_at = time.monotonic()
        for event in session.transcribe(audio.chunks(), speed=1.0):
            now = time.monotonic()
            turn = log.observe(event, now)
            at = timestamp(now - log.audio_start_at)
            match event:
                case Delta() if turn is not None:
                    live.partial(f"{at}  … {turn.text}")
                    if not live.is_terminal:
                        live.line(f"{at}  … {turn.text}")
                case Completed() if turn is not None:
                    show_turn(log, turn, spoken, at, live)
                case Failed() | ErrorEvent():
                    live.line(f"{at}  ! {event.error.message}")
                case _:
                    pass
    return log


def show_turn(log: TurnLog, turn: Turn, spoken: list[SpokenTurn], at: str, live: LiveText) -> None:
    """The final transcript next to what was said."""
    live.line(f"{at}  heard: {turn.transcript}")
    words = " ".join(part.text for part in spoken if turn in log.turns_of(part))
    live.line(f"{'':{len(at)}}   said: {words or '(nothing)'}\n")


def summary(log: TurnLog, spoken: list[SpokenTurn]) -> str:
    """A table of the turns, then the medians."""
    rows, latencies = [], []
    errors = log.word_errors(spoken)
    for number, part in enumerate(spoken, 1):
        found = log.turns_of(part)
        if not found:
            rows.append([str(number), part.language, "not heard", "", "", ""])
            continue
        each = (
            log.first_partial_s(found[0], part),
            found[-1].final_s,
            log.after_last_word_s(found[-1], part),
        )
        latencies.append(each)
        wrong = word_errors(part.text, " ".join(turn.transcript or "" for turn in found))
        rows.append([str(number), part.language, *map(ms, each), f"{wrong.errors} of {wrong.words}"])
    middle = [
        ms(percentile([value for value in column if value is not None], 50))
        for column in zip(*latencies, strict=True)
    ]
    rows.append(["median", "", *middle, f"WER {100 * errors.rate:.1f} %"])
    headers = ["turn", "language", "first partial ms", "final ms", "after last word ms", "words wrong"]
    return "\n".join(
        [
            table(headers, rows),
            "",
            "first partial: speech start → first text    final: turn end → exact transcript",
            "after last word: end of speech → exact transcript, with the silence that tells a turn is over",
        ]
    )


def ms(seconds: float | None) -> str:
    """A latency cell."""
    return "–" if seconds is None else f"{1000 * seconds:.0f}"


@contextmanager
def running_server() -> Iterator[str]:
    """The address of a server started for the demo, and stopped after it."""
    program = str(Path(sys.executable).with_name("sensorium"))
    command = [program, "serve", "--port", "0", "--access-log", "off"]
    print(f"starting: sensorium {' '.join(command[1:])}", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("listening on "):
                    print(f"{line.strip()}\n", flush=True)
                    yield line.removeprefix("listening on ").strip()
                    break
            else:
                raise SystemExit(f"the server did not start: exit code {process.wait()}")
        finally:
            process.terminate()


def main() -> int:
    """Run against the URL given, or against a server of our own."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("http"):
        print(__doc__)
        return 2
    try:
        if len(sys.argv) > 1:
            return demo(sys.argv[1])
        with running_server() as url:
            return demo(url)
    except SDKError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
