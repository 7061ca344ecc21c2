"""Processor time per token of a streamed answer: calls of tools beside plain text, in every format.

    python examples/benchmarks/bench_tool_calls.py [--words 1500] [--rounds 15]

Prepared tokens go one by one the way of a chat's stream, without a model: what reads the answer
(`engine/text/tools/machine.py`), what it adds to the message (`protocols/chat/stream_events.py`), the chunk
as JSON. Engine, detokenizer and socket cost the same whatever an answer says, and are not in it. Prints the
best of the rounds, in microseconds per token: text from a request without tools, which nothing has to read;
for each format that text from a request with tools, a call with it as an argument, their ratio, and how much
more a token costs in an answer eight times as long (1.00: what was read is not read again).
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import time
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Final

from sensorium.engine.text.tools.formats import FORMATS, FormatName
from sensorium.engine.text.tools.gemma_calls import GEMMA_4
from sensorium.engine.text.tools.harmony import CALL, CHANNEL, MESSAGE
from sensorium.engine.text.tools.json_calls import DEEPSEEK, KIMI
from sensorium.engine.text.tools.machine import AnswerFormat, AnswerMachine
from sensorium.engine.text.tools.tagged_calls import CODER, GLM, MINIMAX
from sensorium.protocols.chat.response import ChatChunk, ChunkChoice, Delta
from sensorium.protocols.chat.stream_events import delta_of
from sensorium.protocols.shared.generation import sse

TEXT: Final = "The quick brown fox jumps over the lazy dog and sleeps for seven hours in the kitchen"
SCHEMA: Final = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}
LONGER: Final = 8
_PIECES: Final = re.compile(r"\s?\w+|\s|[^\w\s]")


def words(count: int) -> str:
    """A text of so many words."""
    return " ".join(islice(cycle(TEXT.split()), count))


def answers(text: str) -> dict[str, tuple[FormatName, str, str]]:
    """By what is shown: a format, an answer that says the text, and one with it in a call's arguments."""
    arguments = json.dumps({"n": 3, "text": text})
    calls: dict[str, tuple[FormatName, str]] = {
        "hermes": ("hermes", f'<tool_call>{{"name": "note", "arguments": {arguments}}}</tool_call>'),
        "hermes, name last": (
            "hermes",
            f'<tool_call>{{"arguments": {arguments}, "name": "note"}}</tool_call>',
        ),
        "llama": ("llama", f'{{"name": "note", "parameters": {arguments}}}'),
        "llama, Python": ("llama", f'[note(n=3, text="{text}")]'),
        "mistral": ("mistral", f"[TOOL_CALLS]note[ARGS]{arguments}"),
    }
    coder, glm, kimi, minimax, gemma = CODER, GLM, KIMI, MINIMAX, GEMMA_4
    begin, call, separator, end, section_end = DEEPSEEK
    written: dict[FormatName, str] = {
        "qwen3_coder": f"{coder[0]}{coder[1]}note>{coder[2]}text>{text}{coder[3]}{coder[4]}{coder[5]}",
        "deepseek": f"{begin}{call}function{separator}note\n```json\n{arguments}\n```{end}{section_end}",
        "glm": f"{glm[0]}note{glm[1]}text{glm[2]}{glm[3]}{text}{glm[4]}{glm[5]}",
        "kimi_k2": f"{kimi[0]}{kimi[1]}functions.note:0{kimi[2]}{arguments}{kimi[3]}{kimi[4]}",
        "minimax_m2": f'{minimax[0]}{minimax[1]}"note">{minimax[2]}"text">{text}{"".join(minimax[3:])}',
        "harmony": f"{CHANNEL}commentary to=functions.note{MESSAGE}{arguments}{CALL}",
        "gemma": f"{gemma[0]}call:note{{text:{gemma[2]}{text}{gemma[2]}}}{gemma[1]}",
    }
    calls |= {name: (name, answer) for name, answer in written.items()}
    head = {"harmony": f"{CHANNEL}final{MESSAGE}"}
    return {shown: (name, head.get(name, "") + text, call) for shown, (name, call) in calls.items()}


def stream(name: FormatName | None, pieces: Sequence[str]) -> int:
    """Stream one answer; None: nothing reads it. Returns the bytes of its chunks."""
    machine = None if name is None else AnswerMachine(AnswerFormat(FORMATS[name]), {"note": SCHEMA})
    num_bytes = 0
    for piece in pieces:
        if machine is None:
            delta = Delta(content=piece)
        elif events := machine.push(piece):
            delta = delta_of(events, shows_reasoning=True)
        else:
            continue
        chunk = ChatChunk(id="chatcmpl-1", created=1, model="m", choices=[ChunkChoice(index=0, delta=delta)])
        num_bytes += len(sse(chunk))
    return num_bytes


def per_token_us(name: FormatName | None, answer: str, rounds: int) -> float:
    """The best round's processor time per token."""
    pieces = _PIECES.findall(answer)
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        stream(name, pieces)
        best = min(best, time.process_time() - start)
    return 1e6 * best / len(pieces)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=int, default=1500, help="length of the text")
    parser.add_argument("--rounds", type=int, default=15, help="of each answer, the best counts")
    args = parser.parse_args()
    text, long = words(args.words), words(args.words * LONGER)
    print(f"no tools: {per_token_us(None, text, args.rounds):.2f} µs a token")
    print(f"{'format':18}{'text':>8}{'call':>8}{'ratio':>8}{f'x{LONGER} long':>10}")
    longer = answers(long)
    for shown, (name, plain, call) in answers(text).items():
        of_text, of_call = (per_token_us(name, answer, args.rounds) for answer in (plain, call))
        growth = per_token_us(name, longer[shown][2], max(1, args.rounds // LONGER)) / of_call
        print(f"{shown:18}{of_text:8.2f}{of_call:8.2f}{of_call / of_text:8.2f}{growth:10.2f}")


if __name__ == "__main__":
    main()
