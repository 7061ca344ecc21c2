"""A scheduler's record gives the same plans again; for random histories see test_scheduler_machine.py."""

from __future__ import annotations

import msgspec
import pytest
from sensorium.engine.planning.plan import Plan
from sensorium.engine.planning.replay import RecordingScheduler, replay
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.messages import RequestId, SessionKey
from support.fake_runner import UNENCODABLE, FakeRunner, item
from support.scheduler_dialogs import CONFIG, align, generate, span
from support.step_loop import StepLoop


def recorded() -> tuple[list[bytes], list[Plan]]:
    """A dialog with every kind of call in it."""
    lines: list[bytes] = []
    loop = StepLoop(RecordingScheduler(CONFIG, lines.append), FakeRunner(num_blocks=CONFIG.num_blocks))
    scheduler = loop.scheduler
    for slot, name in enumerate(["A", "B", "C", UNENCODABLE.decode()]):
        scheduler.encode(slot, item(name).features)
    loop.submit(generate("a", on="A", prompt_logprobs=1), 0)
    loop.submit(generate("b", (1, 9, 9, 2), media=(span("B", 1, 2, (1, 1, 2)),)), None, (1,))
    loop.submit(generate("bad", on=UNENCODABLE.decode()), 3)
    with pytest.raises(BadRequestError):
        loop.submit(generate("refused", ()))
    scheduler.align(align("x"), 0)
    session = msgspec.structs.replace(generate("s"), session=SessionKey("s"))
    loop.submit(session)
    loop.plan()
    loop.plan()
    loop.finish()
    loop.submit(msgspec.structs.replace(session, request_id=RequestId("s again")))
    scheduler.abort(RequestId("b"))
    scheduler.drop_encode(2)
    loop.run(max_in_flight=2)
    scheduler.close_session(SessionKey("s"))
    loop.take(scheduler.free(0))
    loop.run()
    return lines, loop.plans


def test_a_record_gives_the_same_plans() -> None:
    lines, plans = recorded()
    assert all(b"\n" not in line for line in lines)
    kinds = {msgspec.json.decode(line)["type"] for line in lines}
    calls = {"submit", "align", "encode", "drop_encode", "free", "abort", "close_session"}
    assert kinds == {"begin", "schedule", "update", *calls}
    assert [plan for plan in replay(lines) if plan] == plans


def test_what_is_not_a_record_is_refused() -> None:
    lines, _ = recorded()
    with pytest.raises(msgspec.DecodeError):
        list(replay(lines[1:]))
    with pytest.raises(msgspec.DecodeError):
        list(replay([lines[0], b'{"type": "dance"}']))
