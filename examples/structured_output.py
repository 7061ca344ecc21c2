"""Answers that are JSON of a given shape: `python examples/structured_output.py Qwen/Qwen3-0.6B`.

The model runs in this process. Every token is held to the schema, so the answer parses unless `max_tokens`
ends it first: even that of random weights (`python examples/make_random_qwen3.py tiny --shape tiny`).
"""

from __future__ import annotations

import json
import sys

from sensorium import LocalEngine, SamplingOptions
from sensorium.protocols.errors import SensoriumError

SCHEMA = {
    "type": "object",
    "properties": {
        "room": {"enum": ["kitchen", "bedroom", "garage"]},
        "brightness": {"type": "integer", "minimum": 0, "maximum": 100},
    },
    "required": ["room", "brightness"],
    "additionalProperties": False,
}
COMMANDS = ["Set the kitchen lights to ninety percent.", "It is too bright in the bedroom."]


def main(model: str) -> None:
    """Print what each command asks for."""
    chats = [[{"role": "user", "content": command}] for command in COMMANDS]
    with LocalEngine(model) as engine:
        answers = engine.generate(chats, SamplingOptions(max_tokens=256, json_schema=SCHEMA))
    for command, answer in zip(COMMANDS, answers, strict=True):
        ends = answer.finish_reason == "stop"
        print(f"{command} → {json.loads(answer.text) if ends else f'unfinished: {answer.text!r}'}")


if __name__ == "__main__":
    try:
        main(sys.argv[1]) if len(sys.argv) == 2 and sys.argv[1] not in ("-h", "--help") else sys.exit(__doc__)
    except SensoriumError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)
