"""Two models, one socket: what is said is transcribed by one, and answered by the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import voice_agent
from sensorium.actors.config.server import EngineConfig
from support.live_answers import as_messages, chat, live_talk, picture, resumed_talk, text, words_of
from support.raw_socket import pcm, silence
from support.server import Server, make_config, running_server, wait_until
from support.vision_files import png

pytestmark = pytest.mark.slow

INPUT = {"format": {"type": "audio/pcm", "rate": 16_000}}
PICTURE = picture(png(40, 48, 7))


@pytest.fixture(scope="module")
def both(folders: dict[str, Path]) -> Iterator[Server]:
    """A server of a model that hears and one that sees."""
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="32MiB", max_running=8)
    with running_server(make_config("tiny-whisper", str(folders["vision"]), engine=engine)) as server:
        yield server


@pytest.fixture
def server(both: Server) -> Iterator[Server]:
    """The test fails if it leaves anything held."""
    yield both
    both.wait_quiet()


def test_a_spoken_question_about_a_picture(server: Server, lights: bytes) -> None:
    with live_talk(server, audio={"input": INPUT}) as talk:
        talk.add(PICTURE)
        for start in range(0, len(pcm(lights)), 6400):
            talk.session.append_binary(pcm(lights)[start : start + 6400])
        talk.session.append_binary(silence(1.0))
        done = talk.finish()
        (completed,) = talk.session.seen("transcription.completed")
        order = [event["type"] for event in talk.session.events]
        assert order.index("conversation.item.input_audio_transcription.completed") < order.index(
            "response.created"
        )
        messages = as_messages([PICTURE, text(completed["transcript"])])
        assert "kitchen" in completed["transcript"]
        assert words_of(done) == chat(server, "vision", messages)["text"]


def test_the_example_speaks_and_is_answered(server: Server, lights: bytes, tmp_path: Path) -> None:
    speech, shown = tmp_path / "speech.wav", tmp_path / "shown.png"
    speech.write_bytes(lights)
    shown.write_bytes(png(40, 48, 7))
    talk = voice_agent.main(str(speech), str(shown), url=server.url, model="vision", speed=4.0)
    assert len(talk) == 1
    question, answer = talk[0]
    assert "kitchen" in question
    assert answer


def test_barge_in_stops_the_answer(server: Server, lights: bytes) -> None:
    engine = server.service.models["vision"].engine
    with live_talk(server, audio={"input": INPUT}, max_output_tokens="inf", temperature=1.5, seed=1) as talk:
        talk.add(text("Tell me everything"))
        talk.create()
        talk.session.until("response.output_text.delta")
        talk.session.append_binary(pcm(lights))
        done = talk.finish()
        assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
        assert words_of(done)
        # The next turn is answered, in the light of what had been said.
        talk.session.append_binary(silence(1.0))
        talk.session.until("response.output_text.delta")
        talk.session.send({"type": "response.cancel"})
        talk.finish()
        wait_until(lambda: engine.statistics().num_running == 0, timeout_s=2.0)


def test_an_answer_goes_on_while_nobody_is_there(server: Server) -> None:
    with live_talk(server) as lost:
        lost.add(PICTURE)
        lost.create()
        lost.session.cut()
        wait_until(lambda: server.service.sessions.num_detached == 1)
        with resumed_talk(server, lost) as again:
            done = again.finish()
            numbers = [event["server_event_seq"] for event in again.session.events]
            assert numbers == list(range(1, len(numbers) + 1))
            assert words_of(done) == chat(server, "vision", as_messages([PICTURE]))["text"]
            wait_until(
                lambda: not any(each.answers and each.answers.num_running for each in server.service.sessions)
            )
            again.session.socket.close()
