"""Live sessions in vLLM's dialect, measured like the others: the client ends every turn."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from sensorium.client.audio import Audio, wav_bytes
from sensorium.client.bench.bench import BenchPlan, measure
from sensorium.client.bench.flat import spoken
from sensorium.client.errors import SDKError
from sensorium.protocols.realtime.codec import ClientDecoder, encode_event
from sensorium.protocols.realtime.events import InputAudioBufferAppend
from sensorium.protocols.realtime.vllm_events import (
    FlatCommit,
    FlatError,
    FlatUpdate,
    TranscriptionDelta,
    TranscriptionDone,
)
from support.fake_server import WORD_MS, WORDS, DialogClosedError, FakeDialog, serve_realtime

RATE = 16_000


class FlatDialog(FakeDialog):
    """Hears one word per 500 ms of an utterance, as vLLM would: only between a start and a final commit."""

    fail_at: int | None = None
    """The utterance that is answered by an error, from 0."""

    def start(self) -> list[str]:
        self._decoder = ClientDecoder()
        self._listening = False
        self._words: list[str] = []
        self._utterances = 0
        self._bytes = 0
        return ['{"type":"session.created","id":"sess-1","created":1}']

    def receive(self, frame: str | bytes) -> list[str]:
        event = self._decoder.decode(frame)
        self.received.append(event)
        match event:
            case InputAudioBufferAppend() if self._listening:
                return self._receive_audio(event.audio)
            case FlatCommit(final=True):
                self._listening, words, self._words = False, self._words, []
                self._utterances, self._bytes = self._utterances + 1, 0
                if self._utterances - 1 == self.fail_at:
                    return [encode_event(FlatError("broken", "processing_error"))]
                return [encode_event(TranscriptionDone(" ".join(words)))]
            case FlatCommit():
                self._listening = True
            case _:
                assert isinstance(event, FlatUpdate | InputAudioBufferAppend), event
        return []

    def _receive_audio(self, audio: bytes) -> list[str]:
        self._bytes += len(audio)
        if self.close_at_ms is not None and self._bytes >= self.close_at_ms * 2 * RATE // 1000:
            raise DialogClosedError(1011, "the fake broke")
        if self._bytes < (len(self._words) + 1) * WORD_MS * 2 * RATE // 1000:
            return []
        word = WORDS[len(self._words)]
        self._words.append(word)
        return [encode_event(TranscriptionDelta(word if len(self._words) == 1 else f" {word}"))]


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """1.6 s, in which "one" and "one" are said, 300 ms apart; nearly nothing between passes."""
    monkeypatch.setattr("sensorium.client.bench.realtime.GAP_S", 0.1)
    path = tmp_path / "talk.wav"
    path.write_bytes(wav_bytes(Audio(bytes(2 * round(1.6 * RATE)), RATE)))
    turns = [
        {"text": "one", "start_ms": 0, "end_ms": 500},
        {"text": "one", "start_ms": 800, "end_ms": 1300},
    ]
    path.with_suffix(".json").write_bytes(msgspec.json.encode({"turns": turns}))
    return path


def plan(recording: Path, url: str) -> BenchPlan:
    return BenchPlan(
        [recording], [url], streams=[1], seconds=0.5, num_rounds=1, dialect="vllm", language="en"
    )


@pytest.mark.slow
async def test_utterances_are_measured_as_turns(recording: Path) -> None:
    dialogs: list[FlatDialog] = []

    def dialog() -> FlatDialog:
        dialogs.append(FlatDialog())
        return dialogs[-1]

    with serve_realtime(dialog) as url:
        result = await measure(plan(recording, url))
    (round_,) = result.realtime[0].rounds
    assert (round_.errors, round_.num_drops, round_.num_corrections) == ([], 0, 0)
    assert round_.num_turns == 3  # the two, and the silence behind them
    assert len(round_.final_s) == 3
    assert all(0.0 <= value < 0.2 for value in round_.final_s)
    assert all(0.3 < value < 0.9 for value in round_.first_partial_s)
    assert dialogs[-1].received[:2] == [FlatUpdate("", "en"), FlatCommit(False)]


@pytest.mark.slow
async def test_an_error_in_place_of_done_is_a_drop(recording: Path) -> None:
    dialogs = [FlatDialog(), FlatDialog()]  # the first one warms up
    dialogs[1].fail_at = 0
    with serve_realtime(lambda: dialogs.pop(0)) as url:
        result = await measure(plan(recording, url))
    (round_,) = result.realtime[0].rounds
    assert round_.errors == ["broken"]
    assert round_.num_turns == 2
    assert round_.num_drops == 2  # the item, and what was said


@pytest.mark.slow
async def test_a_server_that_goes_away_is_counted(recording: Path) -> None:
    dialogs = [FlatDialog(), FlatDialog(close_at_ms=300)]
    with serve_realtime(lambda: dialogs.pop(0)) as url:
        result = await measure(plan(recording, url))
    (round_,) = result.realtime[0].rounds
    assert "code 1011" in round_.errors[0]


async def test_other_rates_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(wav_bytes(Audio(bytes(48_000), 24_000)))
    with pytest.raises(SDKError, match="16000 samples per second, not 24000"):
        await measure(plan(path, "http://127.0.0.1:1"))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_markers_of_the_language_are_not_counted_as_words(size: int) -> None:
    """They never show, however the text is cut, and nothing that showed is taken back."""
    raw = "language English<asr_text>A long language lesson.language German<asr_text> Guten Tag"
    shown = ""
    for end in range(size, len(raw) + size, size):
        now = spoken(raw[:end])
        assert now.startswith(shown)
        shown = now
    assert shown == "A long language lesson. Guten Tag"
