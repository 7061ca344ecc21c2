"""What is taken for speech, and where speech without pauses is cut.

    python examples/benchmarks/bench_hearing.py gate HUMAN [--peak-db -50]
    python examples/benchmarks/bench_hearing.py cuts [HUMAN] [--count 400]

HUMAN is a folder with `manifest.json`, a list of `{"id", "path", "text", "language"}`, and, for `gate`, a
folder `music` of WAV files. `gate` lists how many recordings and how many half minutes of music pass for
speech by how much evidence is asked for (`media/speech/gate.py`). `cuts` joins recordings without any pause
and says how many cuts land inside a word: of espeak-ng's, whose words' times are known, or, given HUMAN, of
people's, timed by the audio and their text (`media/speech/word_times.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from sensorium.media.speech.cut_points import find_cut
from sensorium.media.speech.gate import SPEECH_PROBABILITY
from sensorium.media.speech.voice_activity import FloatArray, VoiceActivityModel, VoiceActivityStream
from sensorium.media.speech.word_times import time_words
from sensorium.protocols.transcription.transcript import Word
from speech_grammar import LANGUAGES
from timed_speech import TimingStudio

RATE = 16_000
MUSIC_S = 28
MARGIN_S = 0.04
"""So near to a word's end a cut does no harm, and nobody's word times are more exact."""
EVIDENCE = (0.3, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A recording from its first word to its last."""

    audio: FloatArray
    words: tuple[Word, ...]


def read(path: Path) -> FloatArray:
    """Mono at 16 kHz."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return np.asarray(soxr.resample(samples.mean(axis=1), rate, RATE), np.float32)


def with_peak(samples: FloatArray, decibels: float | None) -> FloatArray:
    """At that peak, or as it is."""
    if decibels is None:
        return samples
    return samples * np.float32(10 ** (decibels / 20) / max(1e-9, float(np.abs(samples).max())))


def evidence(model: VoiceActivityModel, samples: FloatArray) -> float:
    """What `SpeechGate` adds up."""
    scores = (probability for _, probability in VoiceActivityStream(model).push(samples))
    return sum(score for score in scores if score >= SPEECH_PROBABILITY)


def music(folder: Path) -> Iterator[FloatArray]:
    """Half minutes of every piece."""
    for path in sorted((folder / "music").glob("*.wav")):
        samples = read(path)
        for start in range(0, len(samples) - 5 * RATE, MUSIC_S * RATE):
            yield samples[start : start + MUSIC_S * RATE]


def measure_gate(folder: Path, peak_db: float | None) -> None:
    """Print how many pass."""
    model = VoiceActivityModel()
    listed = json.loads((folder / "manifest.json").read_text("utf-8"))
    speech = [evidence(model, with_peak(read(folder / each["path"]), peak_db)) for each in listed]
    pieces = [evidence(model, with_peak(piece, peak_db)) for piece in music(folder)]
    print(f"{'evidence':>10s} {'speech lost':>14s} {'music passes':>14s}")
    for least in EVIDENCE:
        lost, passed = sum(each < least for each in speech), sum(each >= least for each in pieces)
        print(f"{least:10.1f} {lost:6d} of {len(speech):4d} {passed:6d} of {len(pieces):4d}")
    for each, speech_s in zip(listed, speech, strict=True):
        if speech_s < 2.0:
            print(f"  {speech_s:4.1f} {each['language']} {each['text']!r}")


def espeak(count: int) -> list[Spoken]:
    """Sentences no model has seen."""
    studio = TimingStudio(3)
    recordings = [studio.recording(index, name) for index in range(count // 3) for name in LANGUAGES]
    return [
        _trimmed(each.audio, [Word(word.text, word.start_s, word.end_s) for word in each.words])
        for each in recordings
    ]


def people(folder: Path, count: int) -> list[Spoken]:
    """Recordings of several words."""
    listed = json.loads((folder / "manifest.json").read_text("utf-8"))
    listed = [each for each in listed if len(each["text"].split()) >= 4]
    chosen = np.random.default_rng(0).permutation(len(listed))[:count]
    audios = [(read(folder / listed[index]["path"]), listed[index]["text"]) for index in chosen]
    return [_trimmed(audio, time_words(text, audio)) for audio, text in audios]


def _trimmed(audio: FloatArray, words: Sequence[Word]) -> Spoken:
    start, end = words[0].start, words[-1].end
    part = audio[int(start * RATE) : int(end * RATE)]
    moved = tuple(Word(word.word, word.start - start, word.end - start) for word in words)
    return Spoken(part * np.float32(0.5 / max(1e-9, float(np.abs(part).max(initial=0.0)))), moved)


def measure_cuts(recordings: Sequence[Spoken], num_windows: int = 300) -> None:
    """Print how many cuts of random windows land inside a word."""
    audio = np.concatenate([each.audio for each in recordings])
    starts = np.cumsum([0, *(len(each.audio) for each in recordings)]) / RATE
    bounds = np.array(
        [
            (start + word.start + MARGIN_S, start + word.end - MARGIN_S)
            for each, start in zip(recordings, starts, strict=False)
            for word in each.words
        ]
    )
    model = VoiceActivityModel()
    window = 30 * RATE
    places = np.random.default_rng(1).integers(0, len(audio) - window, num_windows)
    print(
        f"{len(audio) / RATE:.0f} s joined without pauses, {len(bounds)} words, {num_windows} windows of 30 s"
    )
    for search_s in (3, 8, 12, 15):
        for name, activity in (("loudness", None), ("loudness and voice activity", model)):
            lengths = np.array(
                [
                    find_cut(audio[place:][:window], search_samples=search_s * RATE, activity=activity)
                    for place in places
                ]
            )
            cuts = (places + lengths) / RATE
            inside = ((bounds[:, :1] < cuts) & (cuts < bounds[:, 1:])).any(axis=0)
            print(
                f"  last {search_s} s, {name:28s} inside a word {100 * inside.mean():5.1f} %, "
                f"windows of {lengths.mean() / RATE:.1f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    gate = commands.add_parser("gate")
    gate.add_argument("human", type=Path)
    gate.add_argument("--peak-db", type=float, help="as faint as that")
    cuts = commands.add_parser("cuts")
    cuts.add_argument("human", type=Path, nargs="?")
    cuts.add_argument("--count", type=int, default=400, help="recordings")
    arguments = parser.parse_args()
    if arguments.command == "gate":
        measure_gate(arguments.human, arguments.peak_db)
    elif arguments.human is None:
        measure_cuts(espeak(arguments.count))
    else:
        measure_cuts(people(arguments.human, arguments.count))


if __name__ == "__main__":
    main()
