"""Random histories of a session that answers, and what chat completions say of what is left of them.

Some of them are in the suite; `examples/benchmarks/check_histories.py` goes through as many as it is told.
"""

from __future__ import annotations

import random
from contextlib import ExitStack

from support.live_answers import (
    LiveTalk,
    as_messages,
    chat,
    live_talk,
    picture,
    resumed_talk,
    text,
    words_of,
)
from support.raw_socket import Event
from support.server import Server
from support.vision_files import png


def check_history(server: Server, seed: int, *, num_moves: int = 12) -> None:
    """Items come and go, answers are cut, cancelled and forgotten, connections break: what is answered next
    depends on nothing but the items that are left. The server has a model named `vision`."""
    rng = random.Random(seed)
    with ExitStack() as sockets:
        talk = sockets.enter_context(live_talk(server, max_output_tokens=6))
        items: dict[str, Event] = {}
        for _ in range(num_moves):
            if rng.random() < 0.1:
                talk.session.cut()
                talk = sockets.enter_context(resumed_talk(server, talk))
            _move(talk, items, rng)
        if not items:
            items[talk.add(text("last"))] = text("last")
        done = talk.respond()
        expected = chat(server, "vision", as_messages(list(items.values())), max_tokens=6)
        assert words_of(done) == expected["text"]
        talk.session.socket.close()


def _move(talk: LiveTalk, items: dict[str, Event], rng: random.Random) -> None:
    answers = [name for name, item in items.items() if item["role"] == "assistant" and item["content"]]
    match rng.choice(["text", "picture", "delete", "ask", "ask", "cancel", "truncate"]):
        case "text":
            item = text(f"word {rng.randrange(100)}")
            items[talk.add(item)] = item
        case "picture":
            item = picture(png(40, 48, rng.randrange(5)), "?")
            items[talk.add(item)] = item
        case "delete" if items:
            name = rng.choice(list(items))
            talk.session.send({"type": "conversation.item.delete", "item_id": name})
            talk.session.until("conversation.item.deleted")
            del items[name]
        case "ask" if items:
            _keep(items, talk.respond())
        case "cancel" if items:
            talk.create(max_output_tokens="inf", temperature=1.0, seed=1)
            talk.session.send({"type": "response.cancel"})
            _keep(items, talk.finish())
        case "truncate" if answers:
            name = rng.choice(answers)
            words = items[name]["content"][0]["text"]
            end = rng.randrange(len(words) + 1)
            talk.session.send(
                {
                    "type": "conversation.item.truncate",
                    "item_id": name,
                    "content_index": 0,
                    "audio_end_ms": 0,
                    "text_end": end,
                }
            )
            talk.session.until("conversation.item.truncated")
            items[name] = text(words[:end], "assistant") if end else text("", "assistant") | {"content": []}
        case _:
            pass


def _keep(items: dict[str, Event], done: Event) -> None:
    for item in done["output"]:
        content = [{"type": "output_text", "text": part["text"]} for part in item["content"]]
        items[item["id"]] = {"role": "assistant", "content": content}
