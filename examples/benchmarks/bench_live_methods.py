"""Two ways of transcribing live with one model: incrementally, and by feeding everything again.

    python examples/benchmarks/bench_live_methods.py [MODEL] [--streams 1 8] [--update-ms 1000] [--rounds 3]
    python examples/benchmarks/bench_live_methods.py FOLDER_OF_WHISPER --recording TURNS.wav --streams 1 2 4 6

With Qwen3-ASR `feed again` is the published streaming method (github.com/QwenLM/Qwen3-ASR,
`streaming_transcribe`): every update sends all audio of the turn, and from the third on the answer is forced
to begin with the previous one less its last five tokens; so is its last update. With Whisper every update
transcribes all audio of the turn as if it were a file, as whisper_streaming and its descendants do. Both run
on the same engine, turn about, paced like live streams: an update is asked for when its audio has been spoken
and the one before is answered. Work is counted by the engine; latency is the end of a turn's audio to its
last answer.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np
import torch
import trio
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.inference.client import whole_answer
from sensorium.actors.inference.engine import Engine
from sensorium.actors.model_loading import load_model
from sensorium.actors.speech.families.qwen3_asr import Qwen3Asr
from sensorium.actors.speech.model import LIVE_FINAL, LIVE_PARTIAL
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.client.audio import read_wav
from sensorium.client.bench.bench import interleave, this_machine
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import WordErrors, percentile, word_errors
from sensorium.client.bench.turns import SpokenTurn, read_spoken_turns
from sensorium.engine.models.qwen3_asr.text import parse_answer
from sensorium.media.audio.resample import StreamingResampler
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.engine.messages import (
    ContentHash,
    EncoderItem,
    Request,
    RequestId,
    Sample,
    SamplingParams,
)
from sensorium.protocols.engine.statistics import EngineStatistics
from sensorium.protocols.transcription.transcript import TranscriptionOptions

RECORDING = Path(__file__).parents[1] / "data" / "conversation.wav"
RATE = 16_000
PADDING_S = 0.2
NOISE = 3e-5
"""About one step of 16-bit audio: enough that nothing is found again that another stream computed."""
STAGGER_S = 3.0
FREE_UPDATES, ROLLBACK_TOKENS, MAX_TOKENS = 2, 5, 128
"""As in the published method."""


TranscribeTo = Callable[[int, bool], Awaitable[str]]
"""End of the audio in samples of the turn, whether it is the last update → the text so far."""


@dataclass(frozen=True, slots=True)
class SpeechTurn:
    """What one speaker says at a stretch."""

    samples: Samples
    text: str


@dataclass(slots=True)
class Round:
    """Measurements of one method over all streams."""

    audio_s: float = 0.0
    final_s: list[float] = field(default_factory=list)
    update_s: list[float] = field(default_factory=list)
    errors: WordErrors = field(default_factory=WordErrors)
    work: dict[str, int] = field(default_factory=dict)


class Incremental:
    """Ours: `actors/speech/live.py`."""

    name = "incremental"

    def __init__(self, speech: Transcriber, samples: Samples) -> None:
        self._turn = speech.live(lambda start, end: samples[start:end], TranscriptionOptions(), start=0)

    async def transcribe_to(self, end: int, is_last: bool) -> str:
        """The transcript up to `end`."""
        return (await self._turn.hypothesis(end, final=is_last)).text

    def close(self) -> None:
        """Let go of what the engine keeps."""
        self._turn.close()


class FeedAgain:
    """The published method. Nothing is found again: addresses are new in every update."""

    name = "feed again"

    def __init__(self, speech: Transcriber, samples: Samples) -> None:
        assert isinstance(speech.family, Qwen3Asr)
        self._family = speech.family
        self._samples = samples
        self._answer: tuple[int, ...] = ()
        self._num_updates = 0

    async def transcribe_to(self, end: int, is_last: bool) -> str:
        """The transcript up to `end`."""
        family, mark = self._family, uuid4().hex
        features = family.features()

        def extract() -> tuple[EncoderItem, ...]:
            features.append(self._samples[:end])
            return features.items()

        plain = await trio.to_thread.run_sync(extract)
        items = [
            msgspec.structs.replace(item, content_hash=ContentHash(f"{mark}-{index}"))
            for index, item in enumerate(plain)
        ]
        forced = self._forced()
        prompt = family.text.prompt(items)
        request = Request(
            RequestId(mark),
            (*prompt.token_ids, *forced),
            Sample(SamplingParams(max_tokens=MAX_TOKENS, stop_token_ids=family.text.info.stop_token_ids)),
            media=prompt.spans,
            cache_salt=mark,
            lane=LIVE_FINAL if is_last else LIVE_PARTIAL,
        )
        async with family.engine.placed(items) as place:
            answer = await whole_answer(place, request)
        self._answer = (*forced, *answer.token_ids)
        self._num_updates += 1
        return parse_answer(family.text.tokenizer.decode(self._answer)).text

    def close(self) -> None:
        """Nothing is kept."""

    def _forced(self) -> tuple[int, ...]:
        if self._num_updates < FREE_UPDATES:
            return ()
        forced = self._answer[: max(0, len(self._answer) - ROLLBACK_TOKENS)]
        while forced and self._family.text.tokenizer.decode(forced).endswith("\ufffd"):
            forced = forced[:-1]
        return forced


class TranscribeAgain:
    """All audio so far as a file. What is not the same to the last sample is not found again."""

    name = "transcribe again"

    def __init__(self, speech: Transcriber, samples: Samples) -> None:
        self._speech = speech
        self._samples = samples

    async def transcribe_to(self, end: int, is_last: bool) -> str:
        """The transcript up to `end`."""
        lane = LIVE_FINAL if is_last else LIVE_PARTIAL
        options = TranscriptionOptions()
        return (await self._speech.transcribe(self._samples[:end], options, lane=lane)).text

    def close(self) -> None:
        """Nothing is kept."""


Method = type[Incremental] | type[FeedAgain] | type[TranscribeAgain]


def methods(speech: Transcriber) -> tuple[Method, Method]:
    """What is compared for this model."""
    return Incremental, FeedAgain if isinstance(speech.family, Qwen3Asr) else TranscribeAgain


def speech_turns(recording: Path, turn_s: float) -> list[SpeechTurn]:
    """The recording's turns, those of a language one after the other until a turn is `turn_s` long."""
    audio = read_wav(recording)
    pcm = np.frombuffer(audio.pcm, np.int16).astype(np.float32) / np.float32(32768)
    samples = StreamingResampler(audio.rate).push(pcm, last=True)
    spoken = read_spoken_turns(recording.with_suffix(".json"))
    found = []
    for language in sorted({turn.language for turn in spoken}):
        own = [turn for turn in spoken if turn.language == language]
        parts: list[SpokenTurn] = []
        while not parts or sum(part.end_ms - part.start_ms for part in parts) < 1000 * turn_s:
            parts.append(own[len(parts) % len(own)])
        padding = int(1000 * PADDING_S)
        cuts = [
            samples[(part.start_ms - padding) * RATE // 1000 : (part.end_ms + padding) * RATE // 1000]
            for part in parts
        ]
        found.append(SpeechTurn(np.concatenate(cuts), " ".join(part.text for part in parts)))
    return found


def varied(turn: SpeechTurn, *seed: int) -> SpeechTurn:
    """The same, in samples of its own."""
    noise = np.random.default_rng(seed).standard_normal(len(turn.samples)).astype(np.float32)
    return SpeechTurn(turn.samples + np.float32(NOISE) * noise, turn.text)


async def stream(
    method: Method, speech: Transcriber, turns: Iterator[SpeechTurn], update_ms: int, measured: Round
) -> None:
    """One speaker."""
    for turn in turns:
        begun, num_samples, step = trio.current_time(), len(turn.samples), RATE * update_ms // 1000
        live = method(speech, turn.samples)
        end = step
        while end < num_samples:
            await trio.sleep_until(begun + end / RATE)
            started = trio.current_time()
            await live.transcribe_to(end, False)
            measured.update_s.append(trio.current_time() - started)
            received = int((trio.current_time() - begun) * RATE)
            end = max(end + step, received - received % step)
        await trio.sleep_until(begun + num_samples / RATE)
        text = await live.transcribe_to(num_samples, True)
        measured.final_s.append(trio.current_time() - begun - num_samples / RATE)
        measured.errors += word_errors(turn.text, text)
        measured.audio_s += num_samples / RATE
        live.close()


async def run_round(
    method: Method,
    speech: Transcriber,
    engine: Engine,
    turns: list[SpeechTurn],
    arguments: argparse.Namespace,
    num_streams: int,
    number: int,
) -> Round:
    """All streams side by side."""
    measured, before = Round(), engine.statistics()
    async with trio.open_nursery() as nursery:

        async def one(index: int) -> None:
            await trio.sleep(STAGGER_S * index / num_streams)
            order = [*turns[index % len(turns) :], *turns[: index % len(turns)]]
            own = (varied(turn, number, index, place) for place, turn in enumerate(order))
            await stream(method, speech, own, arguments.update_ms, measured)

        for index in range(num_streams):
            nursery.start_soon(one, index)
    measured.work = spent(before, engine.statistics())
    return measured


def spent(before: EngineStatistics, after: EngineStatistics) -> dict[str, int]:
    """What the engine did in between."""
    names = ("num_encoder_tokens", "num_prefill_tokens", "num_decode_tokens", "num_steps")
    return {name: getattr(after, name) - getattr(before, name) for name in names}


def report(results: dict[tuple[int, str], list[Round]], turns: list[SpeechTurn]) -> str:
    """One row a method."""
    rows = []
    for (num_streams, name), rounds in results.items():
        audio_s = sum(each.audio_s for each in rounds)
        finals = [value for each in rounds for value in each.final_s]
        updates = [value for each in rounds for value in each.update_s]
        errors = sum((each.errors for each in rounds), WordErrors())
        work = [sum(each.work[key] for each in rounds) / audio_s for key in rounds[0].work]
        rows.append(
            [
                str(num_streams),
                name,
                f"{audio_s:.0f}",
                *(f"{value:.1f}" for value in work),
                *(f"{1000 * percentile(updates, share):.0f}" for share in (50, 95)),
                *(f"{1000 * percentile(finals, share):.0f}" for share in (50, 95)),
                f"{100 * errors.rate:.2f}",
            ]
        )
    headers = ["streams", "method", "audio s", "encoder tokens/s", "prefill/s", "decode/s", "steps/s"]
    headers += ["update p50 ms", "p95", "final p50 ms", "p95", "WER %"]
    longest = max(len(turn.samples) for turn in turns) / RATE
    return f"{len(turns)} turns a stream, the longest {longest:.1f} s\n\n{table(headers, rows)}"


async def bench(arguments: argparse.Namespace) -> str:
    """The whole benchmark."""
    config = EngineConfig(device="cpu", dtype=arguments.dtype, num_threads=arguments.threads)
    loaded = await trio.to_thread.run_sync(partial(load_model, "bench", arguments.model, config))
    speech = loaded.speech
    if not isinstance(speech, Transcriber):
        raise SystemExit(f"{arguments.model} does not transcribe")
    turns = speech_turns(arguments.recording, arguments.turn_seconds)
    contenders = methods(speech)
    results: dict[tuple[int, str], list[Round]] = {
        (num_streams, method.name): [] for num_streams in arguments.streams for method in contenders
    }
    async with trio.open_nursery() as nursery:
        await nursery.start(loaded.engine.run)
        for method in contenders:
            await stream(method, speech, iter(turns[:1]), arguments.update_ms, Round())
        for num_streams in arguments.streams:
            for number, (_, index) in enumerate(interleave(len(contenders), arguments.rounds)):
                method = contenders[index]
                results[num_streams, method.name].append(
                    await run_round(method, speech, loaded.engine, turns, arguments, num_streams, number)
                )
        nursery.cancel_scope.cancel()
    return report(results, turns)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="Incremental live transcription against feeding again.")
    parser.add_argument("model", nargs="?", default="tiny-qwen3-asr")
    parser.add_argument(
        "--recording", type=Path, default=RECORDING, help="with its turns in a JSON beside it"
    )
    parser.add_argument("--streams", type=int, nargs="+", default=[8])
    parser.add_argument("--update-ms", type=int, default=1000)
    parser.add_argument("--turn-seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    machine = this_machine()
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"{machine.processor}, {machine.num_cpus} CPUs; {versions}")
    print(f"{arguments.model}, an update every {arguments.update_ms} ms")
    print(trio.run(bench, arguments))


if __name__ == "__main__":
    main()
