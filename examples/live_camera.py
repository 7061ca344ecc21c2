"""Show a film or a camera to a model, and ask: `python live_camera.py FILM|camera|screen "question" [URL]`.

    pip install av pillow
    sensorium serve Qwen/Qwen3-VL-2B-Instruct

The question is asked every ten seconds, and once more at the end. What was seen has been read by then: an
answer begins as soon as the question is. The server is URL, else that of SENSORIUM_BASE_URL, else
http://127.0.0.1:8000. `sensorium watch` is the same as a command.
"""

from __future__ import annotations

import sys

from sensorium.client import Answer, Client, DialogueSession, SDKError
from sensorium.client.cli.camera import frames

EVERY_S = 10.0
KEPT = {"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": {"post_instructions": 8192}}
"""However long it runs: frames, questions and answers of so many tokens, the oldest half goes at a time."""


def shown(answer: Answer) -> str:
    """The answer, printed as it is written."""
    for piece in answer:
        print(piece, end="", flush=True)
    usage = answer.usage
    if usage is not None:
        details = usage.input_token_details
        print(f"  ({details.cached_tokens} of {usage.input_tokens} tokens had been read)")
    return answer.text()


def main(
    source: str,
    question: str,
    url: str | None = None,
    *,
    model: str | None = None,
    speed: float = 1.0,
) -> list[str]:
    """Show, ask, and return the answers."""
    session: DialogueSession
    answers, last_ms = [], 0
    with Client(url) as client, client.realtime(model, type="realtime", truncation=KEPT) as session:
        for timestamp_ms, picture in frames(source, max_fps=session.max_fps, speed=speed):
            session.send_frame(picture, timestamp_ms)
            if timestamp_ms - last_ms >= 1000 * EVERY_S:
                last_ms = timestamp_ms
                answers.append(shown(session.ask(question)))
        answers.append(shown(session.ask(question)))
    return answers


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:4])
    except SDKError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
