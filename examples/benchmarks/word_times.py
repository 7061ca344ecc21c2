"""How far a model's word times are from the truth, on held-out sentences spoken by espeak-ng.

    python examples/benchmarks/word_times.py tiny-whisper
    python examples/benchmarks/word_times.py --true-text --count 60
    python examples/benchmarks/word_times.py FOLDER_OF_WHISPER --human FOLDER_OF_ALIGNED
    python examples/benchmarks/word_times.py FOLDER_OF_WHISPER --human FOLDER_OF_ALIGNED --lead-in-s 10
    python examples/benchmarks/word_times.py --save tests/data/timed_speech --seed 7 --count 6

The model transcribes each recording with word and segment times; words it heard right are compared with when
they were spoken (`timed_speech.py`). With `--true-text` no model runs: the audio alone times the true text
(`media/speech/word_times.py`), as is done for models without cross-attention. The same seed gives the same
table. With `--lead-in-s` each recording begins with so many seconds of pink noise, or of the piece `--music`,
a WAV of 16 kHz, 10 dB fainter than the speech. FOLDER_OF_ALIGNED holds English recordings, each `NAME.wav`
with its words in `NAME.json`, {"w": [{"t": word, "b": begin, "d": duration}]}, as pocketsphinx's source has
them in test/data/librivox.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile
import trio
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from hostile_sounds import pink_noise
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.model_loading import load_model
from sensorium.actors.speech.model import SpeechModel
from sensorium.media.speech.voice_activity import VoiceActivityModel
from sensorium.media.speech.word_times import time_words
from sensorium.protocols.transcription.transcript import Segment, TranscriptionOptions, Word
from speech_grammar import LANGUAGES, Language
from speech_synthesis import SAMPLE_RATE_HZ
from speech_synthesis import Word as SpokenWord
from timed_speech import TimedRecording, TimingStudio


@dataclass(slots=True)
class Errors:
    """Seconds between measured and true starts and ends, of words or of sentences; early is negative."""

    starts_s: list[float] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)

    def line(self, name: str) -> str:
        """Mean, median, 95th percentile and largest of the distance, and the median with its sign."""
        return f"{name:14s} {len(self.starts_s):6d}   {_numbers(self.starts_s)}   {_numbers(self.ends_s)}"


HEADER = f"{'':14s} {'number':>6s}   {'starts: mean, median, 95 %, largest, bias':>41s}   {'ends':>41s}"


def _numbers(errors_s: Sequence[float]) -> str:
    if not errors_s:
        return f"{'-':>41s}"
    values = 1000 * np.array(errors_s)
    off = np.abs(values)
    middle, late = np.quantile(off, [0.5, 0.95])
    return f"{off.mean():6.0f} {middle:6.0f} {late:6.0f} {off.max():6.0f} {np.median(values):+6.0f} ms   "


def add_words(errors: Errors, found: Sequence[Word], recording: TimedRecording) -> None:
    """Compare the words that were heard right, in order, where espeak-ng reported the boundary."""
    true = [_plain(word.text) for word in recording.words]
    matcher = difflib.SequenceMatcher(None, [_plain(word.word) for word in found], true, autojunk=False)
    known = (*recording.is_known, True)
    for block in matcher.get_matching_blocks():
        for here, there in zip(
            range(block.a, block.a + block.size), range(block.b, block.b + block.size), strict=True
        ):
            if known[there]:
                errors.starts_s.append(found[here].start - recording.words[there].start_s)
            if known[there + 1]:
                errors.ends_s.append(found[here].end - recording.words[there].end_s)


def add_segments(errors: Errors, found: Sequence[Segment], recording: TimedRecording) -> None:
    """Compare where sentences begin and end, if there are as many segments as sentences."""
    words = recording.words
    last = [index for index, word in enumerate(words) if word.text[-1] in ".?!" or index + 1 == len(words)]
    if len(last) != len(found):
        return
    for segment, begin, end in zip(found, [0, *(index + 1 for index in last)], last, strict=False):
        errors.starts_s.append(segment.start - words[begin].start_s)
        errors.ends_s.append(segment.end - words[end].end_s)


def _plain(word: str) -> str:
    return re.sub(r"\W", "", word).lower()


def aligned(folder: Path) -> list[TimedRecording]:
    """Recordings of people with the times of their words; noises and silences have no letters."""
    recordings: list[TimedRecording] = []
    for path in sorted(folder.glob("*.wav")):
        listed = json.loads(path.with_suffix(".json").read_text("utf-8"))["w"]
        voiced = [each for each in listed if each["t"][0].isalnum()]
        names = [re.sub(r"\(\d+\)$", "", each["t"]) for each in voiced]
        words = tuple(
            SpokenWord(name, each["b"], each["b"] + each["d"])
            for name, each in zip(names, voiced, strict=True)
        )
        samples = soundfile.read(path, dtype="float32")[0]
        recordings.append(TimedRecording(samples, "en", " ".join(names), words, (True,) * len(words)))
    return recordings


def with_lead_in(recording: TimedRecording, sound: NDArray[np.float32]) -> TimedRecording:
    """The recording behind a sound that is 10 dB fainter."""
    loud, seconds = recording.audio[np.abs(recording.audio) > 0.01], len(sound) / SAMPLE_RATE_HZ
    gain = np.sqrt(0.1 * np.mean(loud**2) / np.mean(sound**2))
    words = tuple(
        SpokenWord(word.text, word.start_s + seconds, word.end_s + seconds) for word in recording.words
    )
    audio = np.concatenate((gain * sound, recording.audio)).astype(np.float32)
    return TimedRecording(audio, recording.language, recording.text, words, recording.is_known)


def sound_in_front(seconds: float, music: Path | None) -> NDArray[np.float32]:
    """So much pink noise, or of a piece of music from its fifth second on."""
    num_samples = round(seconds * SAMPLE_RATE_HZ)
    if music is None:
        return pink_noise(num_samples, seed=1)
    first = 5 * SAMPLE_RATE_HZ
    return np.asarray(soundfile.read(music, dtype="float32")[0][first : first + num_samples], np.float32)


async def measure(speech: SpeechModel, recordings: Sequence[TimedRecording]) -> tuple[Errors, Errors]:
    """Errors of words and of segments."""
    words, segments = Errors(), Errors()
    for recording in recordings:
        options = TranscriptionOptions(
            language=recording.language, word_timestamps=True, segment_timestamps=True
        )
        transcript = await speech.transcribe(recording.audio, options)
        add_words(words, transcript.words, recording)
        add_segments(segments, transcript.segments, recording)
    return words, segments


async def measure_model(model: str, sets: dict[Language, list[TimedRecording]]) -> None:
    """Print the table of a model: an embedded name or a folder."""
    config = EngineConfig(device="cpu", dtype="float32", num_threads=1)
    loaded = load_model(model, model, config, VoiceActivityModel())
    if loaded.speech is None:
        raise SystemExit(f"{model} does not transcribe speech")
    async with trio.open_nursery() as nursery:
        await nursery.start(loaded.engine.run)
        for language, recordings in sets.items():
            words, segments = await measure(loaded.speech, recordings)
            print(
                words.line(f"{language} words"), segments.line(f"{language} segments"), sep="\n", flush=True
            )
        nursery.cancel_scope.cancel()


def measure_true_text(sets: dict[Language, list[TimedRecording]]) -> None:
    """Print the table of the audio's own times."""
    for language, recordings in sets.items():
        errors = Errors()
        for recording in recordings:
            text = " ".join(word.text for word in recording.words)
            add_words(errors, time_words(text, recording.audio), recording)
        print(errors.line(f"{language} words"))


def save(folder: Path, sets: dict[Language, list[TimedRecording]]) -> None:
    """Write the first recording of two sentences of each language as FLAC, and all their words' times."""
    folder.mkdir(parents=True, exist_ok=True)
    described: dict[str, object] = {}
    for language, recordings in sets.items():
        recording = next(each for each in recordings if sum(w.text[-1] in ".?!" for w in each.words) == 2)
        # Eleven bits: what is lost is softer than the recordings' noise, and halves the files.
        samples = (np.round(recording.audio * 1023) * 32).astype(np.int16)
        soundfile.write(folder / f"{language}.flac", samples, SAMPLE_RATE_HZ, subtype="PCM_16")
        described[language] = {
            "text": recording.text,
            "words": [[word.text, round(word.start_s, 3), round(word.end_s, 3)] for word in recording.words],
        }
    text = json.dumps(described, ensure_ascii=False, indent=1)
    (folder / "words.json").write_text(text + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", nargs="?", default="tiny-whisper", help="embedded name or folder")
    parser.add_argument("--true-text", action="store_true", help="time the true text by the audio alone")
    parser.add_argument("--count", type=int, default=60, help="recordings a language")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--human", type=Path, metavar="FOLDER", help="of aligned recordings")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write a few recordings and stop")
    parser.add_argument("--lead-in-s", type=float, default=0.0, help="seconds of another sound in front")
    parser.add_argument("--music", type=Path, metavar="WAV", help="which sound; noise if none is given")
    arguments = parser.parse_args()
    sets: dict[Language, list[TimedRecording]]
    if arguments.human:
        sets = {"en": aligned(arguments.human)}
    else:
        studio = TimingStudio(arguments.seed)
        sets = {name: [studio.recording(each, name) for each in range(arguments.count)] for name in LANGUAGES}
    if arguments.lead_in_s:
        sound = sound_in_front(arguments.lead_in_s, arguments.music)
        sets = {name: [with_lead_in(each, sound) for each in recordings] for name, recordings in sets.items()}
    if arguments.save:
        save(arguments.save, sets)
        return
    print(HEADER)
    if arguments.true_text:
        measure_true_text(sets)
    else:
        trio.run(measure_model, arguments.model, sets)


if __name__ == "__main__":
    main()
