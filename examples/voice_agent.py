"""Talk with a model that sees: `python voice_agent.py SPEECH.wav|mic [PICTURE …]`. Two models, one socket.

    pip install sounddevice                 # for the microphone
    sensorium serve Qwen/Qwen3-VL-2B-Instruct tiny-qwen3-asr

What is said is transcribed by the one model while it is said, and answered by the other as soon as the turn
ends; whoever speaks while an answer is written interrupts it. The server is that of SENSORIUM_BASE_URL, else
http://127.0.0.1:8000.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from sensorium.client import (
    AnswerBegan,
    AnswerDelta,
    AnswerDone,
    Cleared,
    Client,
    Completed,
    DialogueSession,
    Event,
    SDKError,
    SpeechStarted,
)
from sensorium.client.audio import read_wav, silence
from sensorium.client.cli.microphone import RATE, microphone

TAIL_S = 1.5
"""Silence behind a recording, in which its last turn ends."""


def paced(chunks: Iterable[bytes], bytes_per_s: float, speed: float) -> Iterator[bytes]:
    """Chunks when they would have been spoken."""
    began, spoken = time.monotonic(), 0
    for chunk in chunks:
        spoken += len(chunk)
        time.sleep(max(0.0, began + spoken / bytes_per_s / speed - time.monotonic()))
        yield chunk


def main(
    source: str,
    *pictures: str,
    url: str | None = None,
    model: str | None = None,
    speed: float = 1.0,
) -> list[tuple[str, str]]:
    """Speak, print what is heard and answered, and return it, turn by turn."""
    chunks: Iterable[bytes]
    if source == "mic":
        chunks, rate = microphone(), RATE
    else:
        audio = read_wav(source)
        rate = audio.rate
        chunks = paced([*audio.chunks(), silence(TAIL_S, rate)], audio.format.bytes_per_second, speed)
    with Client(url) as client, client.realtime(model, type="realtime", sample_rate=rate) as session:
        events = session.events()
        for path in pictures:
            session.add("", pictures=[Path(path)])
        threading.Thread(target=speak, args=(session, chunks), daemon=True).start()
        return list(turns(events))


def speak(session: DialogueSession, chunks: Iterable[bytes]) -> None:
    """Send what is said; what a clear is answered by comes behind everything that was found in it."""
    for chunk in chunks:
        session.send_audio(chunk)
    session.clear()


def turns(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    """What was heard and what was answered, until all that was said is answered."""
    question = answer_text = ""
    open_turns, is_owed, is_over = set[str](), False, False
    for event in events:
        match event:
            case SpeechStarted():
                open_turns.add(event.item_id)
            case Completed():
                question = event.transcript
                print(f"> {question}")
                open_turns.discard(event.item_id)
                is_owed = is_owed or bool(question)
            case AnswerBegan():
                answer_text = ""
            case AnswerDelta():
                answer_text += event.delta
                print(event.delta, end="", flush=True)
            case AnswerDone(response=response):
                print("" if response.status == "completed" else f" ({response.status})")
                is_owed = False
                yield question, answer_text
            case Cleared():
                is_over = True
        if is_over and not open_turns and not is_owed:
            return


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except SDKError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
