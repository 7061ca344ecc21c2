"""What `make demo` ends with: pictures and a film are shown to a model, live, and it answers about them.

`show` opens sessions that answer, shows them what `examples/training/make_demo_pictures.py` drew and asks
what `data/pictures.json` asks. A film goes frame by frame at the pace it was filmed, so that most of it has
been read when the question comes. Every answer is compared with the right one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sensorium.client import Client, DialogueSession
from sensorium.client.cli.camera import frames
from sensorium.client.terminal import LiveText

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Answered:
    """A question about a file of `data/`, the right answer, what was said and how soon it began."""

    file: str
    question: str
    expected: str
    answer: str
    first_text_s: float
    num_tokens: int
    num_read: int
    """Of the tokens in front of the answer, those that had been read before the question."""

    @property
    def is_right(self) -> bool:
        return self.answer == self.expected


def show(client: Client, live: LiveText, model: str) -> list[Answered]:
    """Show and ask, and print it all."""
    files: dict[str, list[dict[str, str]]] = json.loads((DATA / "pictures.json").read_text("utf-8"))
    live.line(f"\nPictures and a film go to {model}, which answers while it watches.\n")
    return [
        answered
        for name, questions in files.items()
        for answered in _about(client, live, model, name, questions)
    ]


def _about(
    client: Client, live: LiveText, model: str, name: str, questions: list[dict[str, str]]
) -> Iterator[Answered]:
    path = DATA / name
    with client.realtime(model, type="realtime") as session:
        is_film = path.suffix == ".mp4"
        live.line(f"{name}{' (2 frames a second, as from a camera)' if is_film else ''}")
        if is_film:
            for timestamp_ms, frame in frames(str(path), max_fps=session.max_fps):
                session.send_frame(frame, timestamp_ms)
        for number, each in enumerate(questions):
            pictures = () if is_film or number else (path,)
            answered = _answer(session, name, each["question"], each["answer"], pictures)
            verdict = "" if answered.is_right else f"   ✗ right is: {answered.expected}"
            live.line(f"  asked:    {answered.question}")
            live.line(
                f"  answered: {answered.answer}{verdict}\n"
                f"            first text after {1000 * answered.first_text_s:.0f} ms,"
                f" {answered.num_read} of {answered.num_tokens} tokens had been read"
            )
            yield answered
    live.line()


def _answer(
    session: DialogueSession, file: str, question: str, expected: str, pictures: tuple[Path, ...]
) -> Answered:
    begun = time.monotonic()
    first_s: float | None = None
    answer = session.ask(question, pictures=pictures, max_output_tokens=100)
    for _ in answer:
        first_s = time.monotonic() - begun if first_s is None else first_s
    usage = answer.usage
    read = usage.input_token_details.cached_tokens if usage else 0
    count = usage.input_tokens if usage else 0
    return Answered(file, question, expected, answer.text(), first_s or 0.0, count, read)
