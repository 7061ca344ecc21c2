"""The SDK's sessions that answer, against a real server: frames, questions, interruptions, lost
connections.
"""

from __future__ import annotations

import io
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import numpy as np
import pytest
from PIL import Image
from sensorium.client import (
    AnswerDone,
    APIError,
    AsyncClient,
    AsyncDialogueSession,
    Client,
    DialogueSession,
    PictureError,
    Resumed,
    SessionClosedError,
)
from sensorium.client.pictures import Picture, picture_file
from sensorium.client.realtime import async_conversation as async_dialogue
from support.both_loops import both_loops
from support.cutting_proxy import cutting_proxy
from support.live_answers import as_messages, chat, text
from support.live_answers import picture as picture_item
from support.server import Server, wait_until
from support.vision_files import picture, png

pytestmark = pytest.mark.slow

LONG = {"max_output_tokens": "inf", "temperature": 1.5, "seed": 1}


def num_images(server: Server) -> int:
    """Pairs of frames and pictures that were encoded."""
    return server.service.models["vision"].engine.statistics().num_windows_encoded


def test_questions_are_answered_as_chat_completions_are(text_server: Server) -> None:
    with (
        Client(text_server.url) as client,
        client.realtime("vision", type="realtime", temperature=0, max_output_tokens=12) as session,
    ):
        answer_text = "".join(session.ask("What is it?", pictures=[png(40, 48, 3)]))
        item = picture_item(png(40, 48, 3), "What is it?")
        assert answer_text == chat(text_server, "vision", as_messages([item]))["text"]
        answer = session.ask("And now?", max_output_tokens=5, metadata={"mine": "1"})
        assert answer.status == "in_progress"
        again = answer.text()
        messages = as_messages([item, text(answer_text, "assistant"), text("And now?")])
        assert again == chat(text_server, "vision", messages, max_tokens=5)["text"]
        assert answer.usage is not None
        assert answer.usage.input_token_details.cached_tokens > 0
        assert answer.response is not None
        assert (answer.response.metadata or {})["mine"] == "1"
        assert list(answer) == list(answer), "it can be read again"
        session.add("Be brief.", role="system")
        assert session.ask("Hello", conversation="none").text()


def test_a_camera_in_every_form_is_thinned_and_seen(text_server: Server, tmp_path: Path) -> None:
    path = tmp_path / "frame.png"
    path.write_bytes(png(48, 64, 700))
    forms: list[Picture] = [
        path,
        png(48, 64, 701),
        Image.open(io.BytesIO(png(48, 64, 702))),
        picture(48, 64, 703),
    ]
    before = num_images(text_server)
    with (
        Client(text_server.url) as client,
        client.realtime("vision", type="realtime", temperature=0, max_output_tokens=4) as session,
    ):
        sent = [session.send_frame(forms[index // 5 % 4], 100 * index) for index in range(40)]
        assert sum(sent) == 8, "ten a second become two"
        answer = session.ask("What changed?")
        answer.text()
        assert answer.usage is not None
        assert answer.usage.input_token_details.image_tokens > 0
        assert num_images(text_server) - before == 2, "of four pairs, two show the same again"
        with pytest.raises(PictureError, match="not a JPEG"):
            session.send_frame(b"no picture")
        with pytest.raises(PictureError, match=r"the limit is \d+"):
            session.send_frame(b"\xff\xd8\xff" + bytes(5_000_000), 4_300)
        events = session.events()
        session.send_frame(picture(40, 40, 1), 4_500)
        session.send_frame(png(48, 64, 1)[:100], 5_000)
        refused = next(event for event in events if type(event).__name__ == "Error")
        assert "invalid_media" in repr(refused), "the session goes on"


def test_refusals_are_the_answers_own(text_server: Server) -> None:
    with Client(text_server.url) as client, client.realtime("vision", type="realtime") as session:
        first = session.ask("Go on", **LONG)  # type: ignore[arg-type]
        next(iter(first))
        with pytest.raises(APIError, match="conversation_already_has_active_response"):
            session.ask("And?").text()
        assert first.status == "in_progress", "its neighbour goes on"
        session.interrupt()
        with pytest.raises(APIError, match="invalid_media") as refused:
            session.ask("?", pictures=[b"\xff\xd8\xff no picture"]).text()
        assert (refused.value.param or "").endswith(".content[0]")
        with pytest.raises(APIError, match="invalid_value"):
            session.ask("?", temperature=9).text()
        assert session.ask("Hello", max_output_tokens=4).text()
    with (
        pytest.raises(APIError, match=r"session\.max_output_tokens"),
        client.realtime("vision", type="realtime", max_output_tokens=0),
    ):
        pass
    with pytest.raises(TypeError, match="delay"), client.realtime(type="realtime", delay="low"):  # type: ignore[call-overload]
        pass


def test_an_answer_is_interrupted_from_another_thread(text_server: Server) -> None:
    with Client(text_server.url) as client, client.realtime("vision", type="realtime") as session:
        begun = session.answers()
        answer = session.ask("Tell me everything", **LONG)  # type: ignore[arg-type]
        answer_text: list[str] = []

        def listen() -> None:
            answer_text.extend(next(iter(begun)))

        thread = threading.Thread(target=listen)
        thread.start()
        next(iter(answer))
        session.interrupt()
        thread.join(10)
        assert "".join(answer_text) == answer.text() != ""
        assert answer.status == "cancelled"
        assert answer.usage is not None
        assert 0 < answer.usage.output_tokens < answer.usage.total_tokens
        session.interrupt()  # of nothing: nothing
        assert session.ask("Hello", max_output_tokens=4).text()


def watched(session: DialogueSession, seed: int, cut: Callable[[], None] = lambda: None) -> list[str]:
    """Two questions over eight frames; `cut` before some of them, and inside of the answers."""
    answers = []
    for index in range(8):
        session.send_frame(picture(48, 64, seed + index), 500 * index)
        if index % 4 == 2:
            cut()
        if index % 4 == 3:
            answer = session.ask(f"What is {index}?", temperature=0, max_output_tokens=6)
            next(iter(answer))
            cut()
            answers.append(answer.text())
    return answers


def test_a_cut_network_changes_no_answer(text_server: Server) -> None:
    with Client(text_server.url) as client, client.realtime("vision", type="realtime") as session:
        expected = watched(session, 500)
    with (
        cutting_proxy(text_server.port) as proxy,
        Client(proxy.url) as client,
        client.realtime("vision", type="realtime") as session,
    ):
        events = session.events()
        assert watched(session, 500, proxy.cut) == expected
        assert session.ask("Once more?", max_output_tokens=2).text() is not None
        session.close()
        seen = list(events)
    assert sum(isinstance(event, AnswerDone) for event in seen) == 3
    assert any(isinstance(event, Resumed) for event in seen)


def test_a_closed_session_ends_everybody_who_waits(text_server: Server) -> None:
    with Client(text_server.url) as client, client.realtime("vision", type="realtime") as session:
        events, answers = session.events(), session.answers()
        threading.Timer(0.3, session.close).start()
        assert list(answers) == []
        assert list(events) == []
        with pytest.raises(SessionClosedError):
            session.ask("Hello")
    wait_until(lambda: not text_server.service.sessions)


@pytest.mark.parametrize("is_cancelled", [False, True])
@both_loops
async def test_a_session_that_is_left_ends_tasks_that_wait_elsewhere(
    text_server: Server, is_cancelled: bool
) -> None:
    ended: list[str] = []

    async def read(name: str, events: AsyncIterator[object]) -> None:
        async for _ in events:
            pass
        ended.append(name)

    async with AsyncClient(text_server.url) as client, anyio.create_task_group() as others:
        with anyio.fail_after(30), anyio.CancelScope() as scope:
            async with client.realtime("vision", type="realtime") as session:
                others.start_soon(read, "events", session.events())
                others.start_soon(read, "answers", session.answers())
                await anyio.wait_all_tasks_blocked()
                if is_cancelled:
                    scope.cancel()
                    await anyio.sleep_forever()
        with pytest.raises(SessionClosedError, match="was left"):
            await session.ask("Hello")
    assert sorted(ended) == ["answers", "events"]


@both_loops
async def test_a_frame_and_a_question_that_are_cancelled_are_sent_whole(
    text_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled_while_sent(
        session: AsyncDialogueSession, send: Callable[[], Awaitable[object]]
    ) -> None:
        note = session._core.resumption.sent
        with anyio.CancelScope() as scope, monkeypatch.context() as patched:

            def sent(frame: str | bytes) -> None:
                note(frame)
                scope.cancel()

            patched.setattr(session._core.resumption, "sent", sent)
            await send()
        assert scope.cancelled_caught

    async with (
        AsyncClient(text_server.url) as client,
        client.realtime("vision", type="realtime", temperature=0, max_output_tokens=4) as session,
    ):
        begun = session.answers()
        await cancelled_while_sent(session, lambda: session.send_frame(png(48, 64, 5)))
        await cancelled_while_sent(session, lambda: session.ask("What is it?"))
        with anyio.fail_after(30):
            answer = await anext(begun)
            await answer.text()
        assert answer.usage is not None
        assert answer.usage.input_token_details.image_tokens > 0


@both_loops
async def test_pictures_are_read_in_a_thread(text_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []

    def reading(picture: object) -> bytes:
        readers.append(threading.current_thread())
        return picture_file(picture)

    monkeypatch.setattr(async_dialogue, "picture_file", reading)
    async with (
        AsyncClient(text_server.url) as client,
        client.realtime("vision", type="realtime") as session,
    ):
        await session.add("Look.", pictures=[png(40, 48, 3)])
        await (await session.ask("?", pictures=[png(40, 48, 3)], max_output_tokens=1)).text()

    assert len(readers) == 2
    assert threading.current_thread() not in readers


@both_loops
async def test_the_same_for_tasks(text_server: Server) -> None:
    async with (
        AsyncClient(text_server.url) as client,
        client.realtime("vision", type="realtime", temperature=0, max_output_tokens=6) as session,
    ):
        begun = session.answers()
        for index in range(8):
            assert await session.send_frame(np.full((48, 64, 3), 30 * index, np.uint8), 500 * index)
        assert not await session.send_frame(picture(48, 64, 1), 3_600)
        answer = await session.ask("What changed?")
        answer_text = [piece async for piece in answer]
        assert "".join(answer_text) == await answer.text()
        assert answer.usage is not None
        assert answer.usage.input_token_details.image_tokens > 0
        assert await (await anext(begun)).text() == await answer.text()
        first = await session.ask("Go on", max_output_tokens="inf", temperature=1.5, seed=1)
        async for _ in first:
            await session.interrupt()
        assert first.status == "cancelled"
        with anyio.move_on_after(0.01):
            await (await session.ask("Go on", max_output_tokens="inf", temperature=1.5)).text()
        await session.interrupt()
        with pytest.raises(APIError, match="invalid_media"):
            await (await session.ask("?", pictures=[b"\xff\xd8\xff no picture"])).text()
        await session.add("Be brief.", role="system")
