"""The client's session machine against scripted dialogs: what it sends and shows, when it is finished."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from sensorium.client import (
    APIError,
    Committed,
    Completed,
    Delta,
    ErrorEvent,
    Event,
    Flushed,
    UnknownEvent,
    UtteranceEnded,
)
from sensorium.client.realtime.machine import MAX_FRAME_BYTES
from sensorium.client.realtime.transcription_machine import SessionCore
from sensorium.protocols.realtime.codec import decode_client_event, encode_event
from sensorium.protocols.realtime.events import (
    InputAudioBufferAppend,
    InputAudioBufferFlush,
    SessionUpdate,
)
from sensorium.protocols.realtime.session import SessionPatch
from sensorium.protocols.shared.audio_format import AudioFormat
from support.fake_server import FakeDialog, finals
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

SECOND = bytes(48_000)


def opened(
    core: SessionCore | None = None, dialog: FakeDialog | None = None
) -> tuple[SessionCore, FakeDialog]:
    """A machine and a fake server that have agreed on the settings."""
    core, dialog = core or SessionCore(), dialog or FakeDialog()
    for frame in dialog.start():
        core.receive(frame)
    for frame in core.opening():
        for answer in dialog.receive(frame):
            core.receive(answer)
    assert core.ready
    return core, dialog


def exchange(core: SessionCore, dialog: FakeDialog, frames: list[str | bytes]) -> list[Event]:
    """Events shown for the server's answers to these frames."""
    answers = [answer for frame in frames for answer in dialog.receive(frame)]
    return [event for answer in answers for event in core.receive(answer)]


def test_opening_update_is_one_the_server_understands() -> None:
    core = SessionCore(
        model="m",
        language="de",
        prompt="Guten Tag",
        languages=["de", "en"],
        keywords=["Ada Lovelace"],
        delay="low",
        utterance_end_ms=1000,
        left_context_ms=24_000,
        sample_rate=16_000,
        turn_detection={"type": "server_vad", "silence_duration_ms": 300},
        timestamp_granularities=["word"],
    )
    event = decode_client_event(core.opening()[0])
    assert isinstance(event, SessionUpdate)
    assert msgspec.to_builtins(event.session) == {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 16_000},
                "transcription": {
                    "model": "m",
                    "language": "de",
                    "prompt": "Guten Tag",
                    "languages": ["de", "en"],
                    "keywords": ["Ada Lovelace"],
                    "delay": "low",
                    "timestamp_granularities": ["word"],
                    "utterance_end_ms": 1000,
                    "left_context_ms": 24_000,
                },
                "turn_detection": {"type": "server_vad", "silence_duration_ms": 300},
            }
        },
    }


def test_channels_are_asked_for_apart_and_sent_in_whole_frames() -> None:
    core = SessionCore(num_channels=3, multichannel=True)
    (frame,) = core.opening()
    event = decode_client_event(frame)
    assert isinstance(event, SessionUpdate)
    assert isinstance(event.session, SessionPatch)
    configured = event.session.audio and event.session.audio.input
    assert configured
    assert configured.multichannel is True
    assert configured.format
    assert configured.format.channels == 3
    assert [len(frame) for frame in core.append(bytes(10))] == [6]
    assert [len(frame) for frame in core.append(bytes(8))] == [12]
    assert core.audio_s == 3 / 24_000


def test_manual_turns_are_asked_for_with_an_explicit_null() -> None:
    update = json.loads(SessionCore(turn_detection=None).opening()[0])
    assert update["session"]["audio"]["input"]["turn_detection"] is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"encoding": "mp3"}, "encoding"),
        ({"turn_detection": "semantic"}, "turn_detection"),
        ({"delay": "none"}, "delay is 'none': expected one of minimal, "),
        ({"keywords": "Ada"}, "keywords is 'Ada': expected several"),
        ({"languages": "en"}, "languages"),
    ],
)
def test_settings_errors_name_the_argument(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SessionCore(**arguments)  # type: ignore[arg-type]


def test_telephone_encodings_are_always_8_khz() -> None:
    assert SessionCore(encoding="pcmu", sample_rate=24_000).audio_format == AudioFormat("pcmu", 8_000)


def test_binary_audio_is_sent_as_it_is() -> None:
    core, _ = opened()
    assert list(core.append(b"abcd")) == [b"abcd"]


def test_json_audio_is_base64_in_an_append() -> None:
    core, _ = opened(SessionCore(binary=False))
    (frame,) = core.append(b"abcd")
    event = decode_client_event(frame)
    assert isinstance(event, InputAudioBufferAppend)
    assert event.audio == b"abcd"


@pytest.mark.parametrize("size", [1, 3, 4801, 48_000])
def test_audio_arrives_whole_in_whole_samples_however_it_is_cut(size: int) -> None:
    data = bytes(range(256)) * 100
    core, _ = opened()
    frames = [
        frame for start in range(0, len(data), size) for frame in core.append(data[start : start + size])
    ]
    assert all(isinstance(frame, bytes) and len(frame) % 2 == 0 for frame in frames)
    assert b"".join(frame for frame in frames if isinstance(frame, bytes)) == data
    assert core.audio_s == pytest.approx(len(data) / 48_000)


def test_a_huge_chunk_is_cut_into_bounded_frames() -> None:
    core, _ = opened()
    frames = list(core.append(bytes(3 * MAX_FRAME_BYTES + 2)))
    assert len(frames) == 4
    assert max(len(frame) for frame in frames) <= MAX_FRAME_BYTES


def test_a_flush_is_one_the_server_understands_and_takes_whole_samples() -> None:
    core, _ = opened()
    (frame,) = core.flush()
    assert decode_client_event(frame) == InputAudioBufferFlush()
    assert core.receive(encode_event(Flushed(item_id=None))) == [Flushed(item_id=None)]
    list(core.append(b"abc"))
    with pytest.raises(ValueError, match="middle of a sample"):
        core.flush()


def test_half_a_sample_at_the_end_is_an_error_not_a_silent_loss() -> None:
    core, _ = opened()
    list(core.append(b"abc"))
    with pytest.raises(ValueError, match="middle of a sample"):
        core.finish()


def test_server_turns_finish_when_all_are_completed() -> None:
    core, dialog = opened()
    events = exchange(core, dialog, list(core.append(SECOND * 2)))
    assert finals(events) == ["one two", "three four"]
    assert not core.finished
    assert exchange(core, dialog, list(core.finish())) == []  # the empty commit and the fence are not shown
    assert core.finished


def test_finish_commits_a_turn_that_is_still_open() -> None:
    core, dialog = opened()
    exchange(core, dialog, list(core.append(SECOND[: 48 * 700])))
    assert finals(exchange(core, dialog, list(core.finish()))) == ["one"]
    assert core.finished


def test_a_server_commit_that_crosses_finish_is_not_mistaken_for_its_answer() -> None:
    core, dialog = opened()
    crossing = [answer for frame in core.append(SECOND) for answer in dialog.receive(frame)]
    closing = [answer for frame in core.finish() for answer in dialog.receive(frame)]
    for answer in crossing:  # the server's own commit arrives after finish was sent
        core.receive(answer)
        assert not core.finished
    for answer in closing:
        core.receive(answer)
    assert core.finished


def test_the_closing_commit_of_trailing_silence_is_not_shown() -> None:
    core, dialog = opened()
    exchange(core, dialog, list(core.append(SECOND + SECOND[: 48 * 300])))
    assert exchange(core, dialog, list(core.finish())) == []
    assert core.finished


def test_what_the_closing_commit_finds_unannounced_is_shown_whole_and_in_order() -> None:
    core, _ = opened()
    list(core.append(SECOND))
    core.finish()
    kind = "conversation.item.input_audio_transcription"
    shown = [
        event
        for frame in (
            '{"type":"input_audio_buffer.committed","item_id":"i"}',
            '{"type":"input_audio_buffer.cleared"}',
            f'{{"type":"{kind}.completed","item_id":"i","transcript":"hi","usage":{{"type":"duration","seconds":1}}}}',
        )
        for event in core.receive(frame)
    ]
    assert [type(event) for event in shown] == [Committed, Completed]
    assert core.finished


def test_finish_waits_for_the_transcript_not_only_for_the_commit() -> None:
    core, dialog = opened(SessionCore(turn_detection=None))
    exchange(core, dialog, list(core.append(SECOND)))
    committed, transcript, cleared = [answer for frame in core.finish() for answer in dialog.receive(frame)]
    core.receive(committed)
    core.receive(cleared)
    assert not core.finished
    assert core.num_unfinished == 1
    core.receive(transcript)
    assert core.finished


def test_the_end_of_an_utterance_may_come_behind_the_last_answer() -> None:
    ended = '{"type":"input_audio_buffer.utterance_ended","item_id":"item_1","last_word_end_ms":900}'
    core, dialog = opened(SessionCore(turn_detection=None, utterance_end_ms=500))
    exchange(core, dialog, list(core.append(SECOND)))
    committed, transcript, cleared = [answer for frame in core.finish() for answer in dialog.receive(frame)]
    for frame in (committed, cleared):
        core.receive(frame)
        assert (core.finished, core.needs_fence) == (False, False)
    core.receive(transcript)
    assert (core.finished, core.needs_fence) == (False, True)
    fence = core.clear()
    assert (core.finished, core.needs_fence) == (False, False)
    assert [type(event) for event in core.receive(ended)] == [UtteranceEnded]
    assert not core.finished
    assert exchange(core, dialog, list(fence)) == []
    assert core.finished


def test_manual_commits_are_answered_and_a_users_clear_is_shown() -> None:
    core, dialog = opened(SessionCore(turn_detection=None))
    exchange(core, dialog, list(core.append(SECOND)))
    assert finals(exchange(core, dialog, list(core.commit()))) == ["one two"]
    assert [type(event).__name__ for event in exchange(core, dialog, list(core.clear()))] == [
        "InputAudioBufferCleared"
    ]


def test_a_session_goes_on_after_finish() -> None:
    core, dialog = opened()
    exchange(core, dialog, list(core.append(SECOND)))
    exchange(core, dialog, list(core.finish()))
    assert core.finished
    assert finals(exchange(core, dialog, list(core.append(SECOND)))) == ["three four"]
    assert not core.finished


def test_what_waited_for_a_finish_that_is_taken_back_is_shown() -> None:
    core, dialog = opened()
    exchange(core, dialog, list(core.append(SECOND[: len(SECOND) // 4])))
    (commit, _) = core.finish()
    (committed, final) = dialog.receive(commit)
    assert core.receive(committed) == []
    list(core.append(SECOND))
    assert [type(event) for event in core.receive(final)] == [Committed, Completed]


def test_an_error_before_ready_is_raised_with_its_parameter() -> None:
    core, dialog = SessionCore("missing"), FakeDialog()
    (answer,) = dialog.receive(core.opening()[0])
    with pytest.raises(APIError) as caught:
        core.receive(answer)
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "session.audio.input.transcription.model"
    assert "there is no model 'missing' here" in str(caught.value)


def test_an_error_later_is_an_event_and_is_remembered_for_the_close() -> None:
    core, dialog = opened()
    (event,) = exchange(core, dialog, list(core.commit()))
    assert isinstance(event, ErrorEvent)
    assert str(core.closed(ConnectionClosedError(Close(1011, "boom"), None))) == (
        "the server closed the session: code 1011 (server fault), reason: boom; "
        "the last error event said: the buffer is too small"
    )


def test_a_close_counts_the_turns_that_were_lost() -> None:
    core, dialog = opened(SessionCore(turn_detection=None))
    exchange(core, dialog, list(core.append(SECOND)))
    core.receive(dialog.receive(core.commit()[0])[0])
    assert "1 committed turn not transcribed" in str(core.closed(ConnectionClosedError(None, None)))


@pytest.mark.parametrize("frame", ['{"type":"news","a":1}', '{"type":"error"}', "[]", "{", b"\xff", '"x"'])
def test_what_is_not_understood_is_an_unknown_event(frame: str | bytes) -> None:
    core, _ = opened()
    (event,) = core.receive(frame)
    assert isinstance(event, UnknownEvent)


def test_another_servers_session_shape_still_opens_and_its_items_still_finish() -> None:
    core = SessionCore()
    core.receive('{"type":"session.created","session":{"id":"x"}}')
    core.receive('{"type":"session.updated","session":{"id":"x","odd":1}}')
    assert core.ready
    assert core.max_ahead_s == float("inf")
    core.finish()
    core.receive('{"type":"input_audio_buffer.committed","item_id":"i"}')
    core.receive('{"type":"input_audio_buffer.cleared"}')
    assert not core.finished
    core.receive(
        '{"type":"conversation.item.input_audio_transcription.completed","item_id":"i","transcript":""}'
    )
    assert core.finished


def test_a_file_may_run_ahead_by_a_share_of_the_announced_backlog() -> None:
    core, _ = opened()
    assert core.max_ahead_s == 7.5


def test_deltas_are_shown_with_their_text() -> None:
    core, dialog = opened()
    events = exchange(core, dialog, list(core.append(SECOND)))
    assert [event.delta for event in events if isinstance(event, Delta)] == ["one", " two"]


def test_a_container_is_sent_as_it_is() -> None:
    core = SessionCore(audio_format="audio/webm; codecs=opus")
    (frame,) = core.opening()
    event = decode_client_event(frame)
    assert isinstance(event, SessionUpdate)
    assert json.loads(frame)["session"]["audio"]["input"]["format"] == {"type": "audio/webm;codecs=opus"}
    assert list(core.append(b"abc")) == [b"abc"], "no byte waits for another one"
    assert core.pacer(start=5.0, speed=1.0)(b"abc") == 5.0
    assert core.commit()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"audio_format": "audio/midi"}, "audio_format is 'audio/midi': expected one of auto, audio/webm"),
        ({"audio_format": "audio/ogg;codecs=speex"}, "names the codec 'speex'"),
        ({"audio_format": "auto", "sample_rate": 8_000}, "sample_rate is for raw samples"),
        ({"audio_format": "auto", "encoding": "pcmu"}, "encoding is for raw samples"),
    ],
)
def test_containers_that_cannot_be_sent(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SessionCore(**options)
