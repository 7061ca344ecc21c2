"""How soon live text comes and how often it must be corrected, by release policy, in virtual time.

    python examples/training/make_demo_audio.py --turns 300 --output /tmp/talk.wav
    python examples/benchmarks/tune_release.py /tmp/talk.wav [--delay medium ...] [--set settle_ms=350 ...]
    python examples/benchmarks/tune_release.py MIXES/short*.wav --model FOLDER_OF_WHISPER

The recordings go through the real session machine, voice activity and model; only time is made up: an answer
arrives `--answer-ms` of audio after it was asked for. `first text` counts from the beginning of the speech to
the first delta; `corrected` turns released text that their final transcript does not begin with; the final
transcripts of those `not offline` are not what the model says about a file of the same samples. `right from`
is when hypotheses come to begin with the first word of the final transcript for good: a policy that shows
nothing wrong cannot be sooner. `WER` is that of the final transcripts, `of turns` that of those files, `of
file` that of the recording as one file, behind Whisper's normaliser, in percent. Rows encoded and the time of
the device are the engine's, per second of audio.

With `--remember FOLDER` answers are kept there and not asked for again, so that more policies take seconds:
then partial hypotheses reach to whole multiples of 128 ms, and an engine's figures are those of what is new.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import get_args

import jiwer
import msgspec
import numpy as np
import trio
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.live.audio import AudioBatch, Detect, ListeningMachine, LiveEffect, Then, pieces
from sensorium.actors.live.turns import CLEAR_LANGUAGE
from sensorium.actors.model_loading import load_model
from sensorium.actors.speech.model import LiveTurn, SpeechModel
from sensorium.client.audio import Audio, cut, read_wav, silence
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.bench.turns import SpokenTurn, read_spoken_turns
from sensorium.media.audio.resample import StreamingResampler
from sensorium.media.speech.voice_activity import VoiceActivityModel, VoiceActivityStream
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.realtime.events import (
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    InputAudioBufferSpeechStarted,
)
from sensorium.protocols.realtime.session import (
    AudioPatch,
    InputPatch,
    SessionPatch,
    TranscriptionPatch,
)
from sensorium.protocols.transcription.options import Delay
from sensorium.protocols.transcription.transcript import Transcript, TranscriptionOptions
from sensorium.realtime import session as session_module
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.effects import ForgetBefore, ForgetItem, Send, Transcribe
from sensorium.realtime.events import HypothesisReady
from sensorium.realtime.transcript.delay_presets import RELEASES, ReleaseConfig
from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

FRAME_MS = 32
SILENCE_S = 3.2
GRID = 2048
"""Samples between the ends of remembered partial hypotheses."""


@dataclass(slots=True)
class TimedTranscripts:
    """One item of the session."""

    start_ms: int
    first_at_ms: int | None = None
    deltas: list[str] = field(default_factory=list)
    transcript: str | None = None
    answers: list[tuple[int, str]] = field(default_factory=list)
    """When each hypothesis came, the last one included, and its first word."""

    def right_from_ms(self) -> int | None:
        """When the first word was what it is in the end, and stayed so."""
        reference = self.answers[-1][1] if self.answers else ""
        right = itertools.takewhile(lambda answer: answer[1] == reference, reversed(self.answers))
        return min(at_ms for at_ms, _ in right) if reference else None


class Answers:
    """What the model said of each range of a recording, kept in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        known = path.read_bytes() if path is not None and path.exists() else b"{}"
        self._known = msgspec.json.decode(known, type=dict[str, Transcript])

    async def get(self, key: str, compute: Callable[[], Awaitable[Transcript]]) -> Transcript:
        """The answer by this name, asked for if it is not known."""
        if self.path is None:
            return await compute()
        if key not in self._known:
            self._known[key] = await compute()
        return self._known[key]

    def save(self) -> None:
        """Keep them for the next time."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(msgspec.json.encode(self._known))


class Listening:
    """One session listening to a recording."""

    def __init__(
        self,
        speech: SpeechModel,
        activity: VoiceActivityModel,
        audio: Audio,
        answers: Answers,
        answer_ms: int,
        left_context_ms: int,
    ) -> None:
        numbers = itertools.count()
        patch = TranscriptionPatch(left_context_ms=left_context_ms)
        config = SessionConfig(
            model="model",
            models=(RealtimeModel("model", supports_left_context=speech.supports_left_context),),
            initial=SessionPatch(audio=AudioPatch(input=InputPatch(transcription=patch))),
            format=audio.format,
            max_session_s=1e6,
        )
        self._machine = ListeningMachine(
            session_module.Session(config, lambda prefix: f"{prefix}_{next(numbers)}")
        )
        self._stream = VoiceActivityStream(activity)
        self._speech = speech
        self._audio = audio
        self._answers = answers
        self._answer_ms = answer_ms
        self._turns: dict[str, LiveTurn] = {}
        self._due: list[tuple[int, Transcribe]] = []
        self.items: dict[str, TimedTranscripts] = {}
        self._finals: dict[str, tuple[str, Samples, str]] = {}
        self._spoken: str | None = None
        self.num_questions = 0

    async def run(self) -> None:
        """Listen to all of it, and to silence until the last turn is answered."""
        self._machine.configure(self._audio.format, now=0.0)
        now_ms = 0
        self._perform(self._machine.session.open(now=0.0, created=0), now_ms)
        after = cut(silence(SILENCE_S, self._audio.rate), self._audio.format, FRAME_MS)
        for chunk in itertools.chain(self._audio.chunks(FRAME_MS), after):
            now_ms += FRAME_MS
            for piece in pieces(chunk):
                self._perform(self._machine.receive(AudioBatch([piece]), now=now_ms / 1000), now_ms)
            await self._answer(now_ms)
        for turn in self._turns.values():
            turn.close()

    async def finals(self) -> list[tuple[str, str]]:
        """Of each item the final transcript, and what the model says about a file of the same samples."""
        return [(text, await self._offline(key, samples)) for key, samples, text in self._finals.values()]

    async def whole(self) -> str:
        """What the model says about the recording as one file."""
        pcm = np.frombuffer(self._audio.pcm, np.int16).astype(np.float32) / np.float32(32768)
        return await self._offline("all", StreamingResampler(self._audio.rate).push(pcm, last=True))

    async def _offline(self, key: str, samples: Samples) -> str:
        compute = partial(self._speech.transcribe, samples, TranscriptionOptions())
        return (await self._answers.get(f"file {key}", compute)).text

    async def _answer(self, now_ms: int) -> None:
        for due_ms, question in tuple(self._due):
            if due_ms <= now_ms:
                self._due.remove((due_ms, question))
                if question.item_id in self._turns:
                    await self._answer_question(question, now_ms)

    async def _answer_question(self, question: Transcribe, now_ms: int) -> None:
        start, end, is_final = question.start_sample, question.end_sample, question.final
        if self._answers.path is not None and not is_final:
            end = start + (end - start) // GRID * GRID
        compute = partial(self._turns[question.item_id].hypothesis, end, final=is_final)
        cache_key = f"{'final' if is_final else 'partial'} {start} {end}"
        if is_final and question.before:
            cache_key += f" behind {question.before}"
        transcript = await self._answers.get(cache_key, compute)
        if is_final and transcript.text and transcript.language_probability >= CLEAR_LANGUAGE:
            self._spoken = transcript.language
        if is_final:
            samples = self._machine.tracks[0].store.copy(start, end)
            self._finals[question.item_id] = f"{start} {end}", samples, transcript.text
        first_word = BasicTextNormalizer()(transcript.text).partition(" ")[0]
        self.items[question.item_id].answers.append((now_ms, first_word))
        event = HypothesisReady(question.item_id, start, question.end_sample, is_final, transcript)
        self._perform(self._machine.receive(event, now=now_ms / 1000), now_ms)

    def _perform(self, effects: Sequence[LiveEffect], now_ms: int) -> None:
        now = now_ms / 1000
        for effect in effects:
            match effect:
                case Detect(samples):
                    self._perform(self._machine.scored(self._stream.push(samples), now=now), now_ms)
                case Then():
                    self._perform(self._machine.proceed(effect, now=now), now_ms)
                case Transcribe():
                    self.num_questions += 1
                    if effect.item_id not in self._turns:
                        self._turns[effect.item_id] = self._speech.live(
                            self._machine.tracks[0].store.copy,
                            TranscriptionOptions(),
                            start=effect.start_sample,
                            before=effect.before,
                            spoken=self._spoken,
                        )
                    self._due.append((now_ms + self._answer_ms, effect))
                case ForgetItem(item_id) if item_id in self._turns:
                    self._turns.pop(item_id).close()
                case ForgetBefore(sample):
                    self._machine.tracks[0].store.forget_before(sample)
                case Send(InputAudioBufferSpeechStarted(item_id=item_id, audio_start_ms=start_ms)):
                    self.items[item_id] = TimedTranscripts(start_ms)
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
    rights: list[float] = []
    corrected = 0
    for turn, after in itertools.zip_longest(spoken, spoken[1:]):
        end_ms = after.start_ms if after else float("inf")
        mine = [
            item for item in listening.items.values() if turn.start_ms - 500 <= item.start_ms < end_ms - 500
        ]
        first = min((item.first_at_ms for item in mine if item.first_at_ms is not None), default=None)
        if first is not None:
            firsts.append(first - turn.start_ms)
        right = min((at_ms for item in mine if (at_ms := item.right_from_ms()) is not None), default=None)
        if right is not None:
            rights.append(right - turn.start_ms)
        for item in mine:
            if item.transcript != "".join(item.deltas):
                corrected += 1
                if is_verbose:
                    print(f"  {name}: {item.deltas} → {item.transcript}")
    quantiles = [f"{percentile(firsts, share):.0f}" for share in (50, 95, 99)]
    quantiles += [f"{percentile(rights, share):.0f}" for share in (50, 95)]
    share = f"{100 * corrected / len(spoken):.1f}"
    return [name, str(len(spoken)), *quantiles, share, f"{listening.num_questions / len(spoken):.1f}"]


def error_rate(spoken: list[SpokenTurn], texts: Sequence[str]) -> str:
    """Words wrong in all turns together, in percent."""
    normal = (
        EnglishTextNormalizer({}) if {turn.language for turn in spoken} == {"en"} else BasicTextNormalizer()
    )
    reference, recognized = normal(" ".join(turn.text for turn in spoken)), normal(" ".join(texts))
    return f"{100 * jiwer.wer(reference, recognized):.2f}"


async def tune(arguments: argparse.Namespace) -> str:
    """Every policy in turn, on every recording."""
    config = EngineConfig(device="cpu", dtype=arguments.dtype, num_threads=1)
    loaded = await trio.to_thread.run_sync(partial(load_model, "model", arguments.model, config))
    if loaded.speech is None:
        raise SystemExit(f"{arguments.model} does not transcribe")
    activity, rows = VoiceActivityModel(), []
    async with trio.open_nursery() as nursery:
        await nursery.start(loaded.engine.run)
        for path, delay in itertools.product(arguments.recording, arguments.delay):
            RELEASES["medium"] = changed(PUBLISHED[delay], arguments.set)
            audio, spoken = read_wav(path), read_spoken_turns(path.with_suffix(".json"))
            answers = Answers(arguments.remember and arguments.remember / f"{path.stem}.json")
            listening = Listening(
                loaded.speech, activity, audio, answers, arguments.answer_ms, arguments.left_context_ms
            )
            before = loaded.engine.statistics()
            name = f"{path.stem}, {delay}"
            try:
                await listening.run()
                after = loaded.engine.statistics()
                found = row(name, listening, spoken, is_verbose=arguments.verbose)
                found += error_rates(spoken, await listening.finals(), await listening.whole())
            finally:
                answers.save()
            encoded, busy_s = (
                after.num_encoder_tokens - before.num_encoder_tokens,
                after.busy_s - before.busy_s,
            )
            found += [f"{encoded / audio.duration_s:.0f}", f"{busy_s / audio.duration_s:.3f}"]
            print(", ".join(found), file=sys.stderr, flush=True)
            rows.append(found)
        nursery.cancel_scope.cancel()
    headers = [
        "recording, delay",
        "turns",
        "first text p50 ms",
        "p95",
        "p99",
        "right from p50 ms",
        "p95",
        "corrected %",
        "questions a turn",
    ]
    headers += ["not offline", "WER %", "of turns %", "of file %", "encoder rows/s", "device s/s"]
    return table(headers, rows)


def error_rates(spoken: list[SpokenTurn], finals: list[tuple[str, str]], whole: str) -> list[str]:
    """How many finals are not offline answers, and the errors of finals, of those answers and of a file."""
    num_different = sum(live != offline for live, offline in finals)
    texts = [[live for live, _ in finals], [offline for _, offline in finals], [whole]]
    return [str(num_different), *(error_rate(spoken, each) for each in texts)]


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
    parser.add_argument("recording", type=Path, nargs="+", help="with its turns in a JSON beside it")
    parser.add_argument("--model", default="tiny-qwen3-asr")
    parser.add_argument("--delay", nargs="+", choices=get_args(Delay), default=["medium"])
    parser.add_argument("--set", nargs="*", default=[], help="fields of the policy, as settle_ms=350")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--answer-ms", type=int, default=40)
    parser.add_argument("--left-context-ms", type=int, default=0)
    parser.add_argument("--remember", type=Path, metavar="FOLDER", help="keep the model's answers there")
    parser.add_argument("--verbose", action="store_true", help="show the corrected turns")
    print(trio.run(tune, parser.parse_args()))


if __name__ == "__main__":
    main()
