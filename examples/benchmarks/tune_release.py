"""How soon live text comes and how often it must be corrected, by release policy, in virtual time.

    python examples/training/make_demo_audio.py --turns 300 --output /tmp/talk.wav
    python examples/benchmarks/tune_release.py /tmp/talk.wav [--delay medium ...] [--set settle_ms=350 ...]

The recording goes through the real session machine, voice activity and model; only time is made up: an answer
arrives `--answer-ms` of audio after it was asked for. `first text` counts from the beginning of the speech to
the first delta; `corrected` turns released text that their final transcript does not begin with; the final
transcripts of those `not offline` are not what the model says about a file of the same samples. `WER` is that
of the final transcripts, `WER offline` that of those files, behind Whisper's normaliser, in percent. Rows
encoded and the device's time are the engine's, per second of audio.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import get_args

import jiwer
import msgspec
import trio
from sensorium.actors.config import EngineConfig
from sensorium.actors.live.audio import AudioBatch, Hear, ListeningMachine, LiveEffect, Then, pieces
from sensorium.actors.models import load_model
from sensorium.actors.speech.model import LiveTurn, Samples, SpeechModel
from sensorium.client.audio import Audio, read_wav
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.bench.turns import SpokenTurn, read_spoken_turns
from sensorium.media.voice_activity import VoiceActivityModel, VoiceActivityStream
from sensorium.protocols.realtime import (
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    InputAudioBufferSpeechStarted,
)
from sensorium.protocols.realtime_session import Delay
from sensorium.protocols.transcript import TranscriptionOptions
from sensorium.realtime import session as session_module
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.effects import ForgetBefore, ForgetItem, Send, Transcribe
from sensorium.realtime.events import HypothesisReady
from sensorium.realtime.releases import RELEASES, ReleaseConfig
from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

FRAME_MS = 32


@dataclass(slots=True)
class Heard:
    """One item of the session."""

    start_ms: int
    first_at_ms: int | None = None
    deltas: list[str] = field(default_factory=list)
    transcript: str | None = None


class Listening:
    """One session listening to a recording."""

    def __init__(
        self, speech: SpeechModel, activity: VoiceActivityModel, audio: Audio, answer_ms: int
    ) -> None:
        numbers = itertools.count()
        config = SessionConfig(
            model="model", models=(RealtimeModel("model"),), format=audio.format, max_session_s=1e6
        )
        self._machine = ListeningMachine(
            session_module.Session(config, lambda prefix: f"{prefix}_{next(numbers)}")
        )
        self._stream = VoiceActivityStream(activity)
        self._speech = speech
        self._audio = audio
        self._answer_ms = answer_ms
        self._turns: dict[str, LiveTurn] = {}
        self._due: list[tuple[int, Transcribe]] = []
        self.items: dict[str, Heard] = {}
        self._finals: dict[str, tuple[Samples, str]] = {}
        self.num_questions = 0

    async def run(self) -> None:
        """Listen to all of it."""
        self._machine.configure(self._audio.format, now=0.0)
        now_ms = 0
        self._perform(self._machine.session.open(now=0.0, created=0), now_ms)
        for chunk in self._audio.chunks(FRAME_MS):
            now_ms += FRAME_MS
            for piece in pieces(chunk):
                self._perform(self._machine.receive(AudioBatch([piece]), now=now_ms / 1000), now_ms)
            await self._answer(now_ms)
        for turn in self._turns.values():
            turn.close()

    async def finals(self) -> list[tuple[str, str]]:
        """Of each item the final transcript, and what the model says about a file of the same samples."""
        return [
            (text, (await self._speech.transcribe(samples, TranscriptionOptions())).text)
            for samples, text in self._finals.values()
        ]

    async def _answer(self, now_ms: int) -> None:
        for due_ms, question in tuple(self._due):
            if due_ms <= now_ms:
                self._due.remove((due_ms, question))
                if question.item_id in self._turns:
                    turn = self._turns[question.item_id]
                    transcript = await turn.hypothesis(question.end_sample, final=question.final)
                    if question.final:
                        samples = self._machine.tracks[0].store.copy(
                            question.start_sample, question.end_sample
                        )
                        self._finals[question.item_id] = samples, transcript.text
                    where = (question.item_id, question.start_sample, question.end_sample, question.final)
                    event = HypothesisReady(*where, transcript)
                    self._perform(self._machine.receive(event, now=now_ms / 1000), now_ms)

    def _perform(self, effects: Sequence[LiveEffect], now_ms: int) -> None:
        now = now_ms / 1000
        for effect in effects:
            match effect:
                case Hear(samples):
                    self._perform(self._machine.heard(self._stream.push(samples), now=now), now_ms)
                case Then():
                    self._perform(self._machine.proceed(effect, now=now), now_ms)
                case Transcribe():
                    self.num_questions += 1
                    if effect.item_id not in self._turns:
                        self._turns[effect.item_id] = self._speech.live(
                            self._machine.tracks[0].store.copy,
                            TranscriptionOptions(),
                            start=effect.start_sample,
                        )
                    self._due.append((now_ms + self._answer_ms, effect))
                case ForgetItem(item_id) if item_id in self._turns:
                    self._turns.pop(item_id).close()
                case ForgetBefore(sample):
                    self._machine.tracks[0].store.forget_before(sample)
                case Send(InputAudioBufferSpeechStarted(item_id=item_id, audio_start_ms=start_ms)):
                    self.items[item_id] = Heard(start_ms)
                case Send(ConversationItemInputAudioTranscriptionDelta(item_id=item_id, delta=delta)):
                    item = self.items[item_id]
                    item.first_at_ms = item.first_at_ms or now_ms
                    item.deltas.append(delta)
                case Send(ConversationItemInputAudioTranscriptionCompleted(item_id=item_id, transcript=text)):
                    self.items[item_id].transcript = text
                case _:
                    pass


def row(name: str, listening: Listening, spoken: list[SpokenTurn], *, is_verbose: bool = False) -> list[str]:
    """One policy's line of the table."""
    firsts: list[float] = []
    corrected = 0
    for turn, after in itertools.zip_longest(spoken, spoken[1:]):
        end_ms = after.start_ms if after else float("inf")
        mine = [
            item for item in listening.items.values() if turn.start_ms - 500 <= item.start_ms < end_ms - 500
        ]
        first = min((item.first_at_ms for item in mine if item.first_at_ms is not None), default=None)
        if first is not None:
            firsts.append(first - turn.start_ms)
        for item in mine:
            if item.transcript != "".join(item.deltas):
                corrected += 1
                if is_verbose:
                    print(f"  {name}: {item.deltas} → {item.transcript}")
    quantiles = [f"{percentile(firsts, share):.0f}" for share in (50, 95, 99)]
    share = f"{100 * corrected / len(spoken):.1f}"
    return [name, str(len(spoken)), *quantiles, share, f"{listening.num_questions / len(spoken):.1f}"]


def error_rate(spoken: list[SpokenTurn], texts: Sequence[str]) -> str:
    """Words wrong in all turns together, in percent."""
    normal = (
        EnglishTextNormalizer({}) if {turn.language for turn in spoken} == {"en"} else BasicTextNormalizer()
    )
    said, heard = normal(" ".join(turn.text for turn in spoken)), normal(" ".join(texts))
    return f"{100 * jiwer.wer(said, heard):.2f}"


async def tune(arguments: argparse.Namespace) -> str:
    """Every policy in turn."""
    audio = read_wav(arguments.recording)
    spoken = read_spoken_turns(arguments.recording.with_suffix(".json"))
    config = EngineConfig(device="cpu", num_threads=1)
    loaded = await trio.to_thread.run_sync(partial(load_model, "model", arguments.model, config))
    if loaded.speech is None:
        raise SystemExit(f"{arguments.model} does not transcribe")
    activity, rows = VoiceActivityModel(), []
    async with trio.open_nursery() as nursery:
        await nursery.start(loaded.engine.run)
        for delay in arguments.delay:
            RELEASES["medium"] = changed(PUBLISHED[delay], arguments.set)
            listening = Listening(loaded.speech, activity, audio, arguments.answer_ms)
            before = loaded.engine.statistics()
            await listening.run()
            after = loaded.engine.statistics()
            encoded = (after.num_encoder_tokens - before.num_encoder_tokens) / audio.duration_s
            busy = (after.busy_s - before.busy_s) / audio.duration_s
            rows.append(row(delay, listening, spoken, is_verbose=arguments.verbose))
            finals = await listening.finals()
            num_different = sum(live != offline for live, offline in finals)
            rows[-1] += [
                str(num_different),
                *(error_rate(spoken, texts) for texts in zip(*finals, strict=True)),
            ]
            rows[-1] += [f"{encoded:.0f}", f"{busy:.3f}"]
        nursery.cancel_scope.cancel()
    headers = ["delay", "turns", "first text p50 ms", "p95", "p99", "corrected %", "questions a turn"]
    headers += ["not offline", "WER %", "WER offline %", "encoder rows/s", "device s/s"]
    return table(headers, rows)


PUBLISHED = dict(RELEASES)


def changed(release: ReleaseConfig, changes: list[str]) -> ReleaseConfig:
    """The policy with some of its fields set."""
    pairs = (change.split("=") for change in changes)
    return msgspec.structs.replace(
        release, **{name: float(value) if "." in value else int(value) for name, value in pairs}
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="First text and corrections by release policy.")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--model", default="tiny-qwen3-asr")
    parser.add_argument("--delay", nargs="+", choices=get_args(Delay), default=["medium"])
    parser.add_argument("--set", nargs="*", default=[], help="fields of the policy, as settle_ms=350")
    parser.add_argument("--answer-ms", type=int, default=40)
    parser.add_argument("--verbose", action="store_true", help="show the corrected turns")
    print(trio.run(tune, parser.parse_args()))


if __name__ == "__main__":
    main()
