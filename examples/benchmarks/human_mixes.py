"""Long and hostile recordings for measuring, mixed from short human ones and music; the same every time.

    python examples/benchmarks/human_mixes.py FOLDER_OF_HUMAN OUT

FOLDER_OF_HUMAN holds `manifest.json` (a list of {"id", "path", "text", "language", "seconds"}; 16 kHz mono)
and `music/*.wav`. OUT gets a WAV a mix and `manifest.json`: {"id", "path", "seconds", "language", "text",
"parts"}, where a part is an utterance with its text, language, and when it is spoken. Mixes without parts
ought to give no text. `human_speech.py` sends them to a server. Beside a mix with parts stands NAME.json,
from which `sensorium bench` and `tune_release.py` know what is said when.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

RATE_HZ = 16_000
TURNS = {"en": 150, "es": 40, "fr": 40, "it": 40, "ru": 40}
"""How many utterances the mixes have by which live turns are judged."""
NUM_HELD_OUT = 130
"""Utterances of a mix that has none of theirs: what is chosen by those is measured with these."""
Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Utterance:
    """A recording of one person, its text, and its language."""

    id: str
    text: str
    language: str
    samples: Samples


@dataclass(slots=True)
class Mix:
    """Audio in the making, and who says what when in it."""

    pieces: list[Samples] = field(default_factory=list)
    parts: list[dict[str, object]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long it is by now."""
        return sum(map(len, self.pieces)) / RATE_HZ

    def say(self, utterance: Utterance, then_s: float = 0.0) -> None:
        """Append an utterance and a pause."""
        first, last = spoken_part(utterance.samples)
        start = self.seconds
        self.pieces.append(utterance.samples)
        self.parts.append(
            {
                "id": utterance.id,
                "text": utterance.text,
                "language": utterance.language,
                "start": round(start + first / RATE_HZ, 3),
                "end": round(start + last / RATE_HZ, 3),
            }
        )
        self.sound(silence(then_s))

    def sound(self, samples: Samples) -> None:
        """Append what nobody says."""
        self.pieces.append(samples)

    def changed(self, change: Callable[[Samples], Samples]) -> Mix:
        """The same words with other samples of the same length."""
        return Mix([change(self.samples())], list(self.parts))

    def samples(self) -> Samples:
        """All of it."""
        return np.concatenate(self.pieces).astype(np.float32)


def spoken_part(samples: Samples) -> tuple[int, int]:
    """From the first to the last sample that is not 34 dB below the loudest: studio prompts have no noise."""
    loud = np.flatnonzero(np.abs(samples) > 0.02 * np.abs(samples).max())
    return int(loud[0]), int(loud[-1]) + 1


def silence(seconds: float) -> Samples:
    """Digital silence."""
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def pink_noise(count: int, seed: int) -> Samples:
    """Noise of unit power that falls by 3 dB an octave from 20 Hz on."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(count))
    frequencies = np.maximum(np.fft.rfftfreq(count, 1 / RATE_HZ), 20.0)
    noise: Samples = np.fft.irfft(spectrum / np.sqrt(frequencies), count).astype(np.float32)
    return noise / float(noise.std())


def with_noise(samples: Samples, decibels: float, seed: int) -> Samples:
    """Pink noise so far under the speech; the power of silence does not count."""
    loud = np.abs(samples) > 0.01 * np.abs(samples).max()
    power = float(np.mean(samples[loud].astype(np.float64) ** 2))
    return samples + pink_noise(len(samples), seed) * np.float32(np.sqrt(power / 10 ** (decibels / 10)))


def with_peak(samples: Samples, decibels: float) -> Samples:
    """The same, so loud at its loudest (dB of full scale)."""
    return samples * float(10 ** (decibels / 20) / np.abs(samples).max())


def over_telephone(samples: Samples) -> Samples:
    """8 kHz of G.711 µ-law, and back to 16 kHz: 8 bits a sample, companded by 255."""
    narrow = soxr.resample(samples, RATE_HZ, 8000)
    companded = np.sign(narrow) * np.log1p(255 * np.minimum(np.abs(narrow), 1)) / np.log(256)
    coded = np.round(companded * 127) / 127
    heard = np.sign(coded) * np.expm1(np.abs(coded) * np.log(256)) / 255
    wide = soxr.resample(heard.astype(np.float32), 8000, RATE_HZ)
    return np.resize(wide, len(samples)).astype(np.float32)


def with_reverberation(samples: Samples, seed: int, decay_s: float = 0.6) -> Samples:
    """A room: direct sound and a tail of noise that falls by 60 dB in `decay_s`."""
    count = round(decay_s * RATE_HZ)
    tail = np.random.default_rng(seed).standard_normal(count) * 10 ** (-3 * np.arange(count) / count)
    tail[: round(0.005 * RATE_HZ)] = 0
    answer = 0.5 * tail / np.sqrt(np.sum(tail**2))
    answer[0] = 1.0
    size = len(samples) + count
    heard = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(answer, size), size)[: len(samples)]
    return (heard / max(1.0, float(np.abs(heard).max()))).astype(np.float32)


def laughter(seconds: float, seed: int) -> Samples:
    """Bursts of voiced noise, five a second in bouts of about a second, as laughter sounds."""
    generator = np.random.default_rng(seed)
    pieces: list[Samples] = []
    while sum(map(len, pieces)) < seconds * RATE_HZ:
        pitch_hz = generator.uniform(180, 320)
        for number in range(generator.integers(4, 8)):
            time = np.arange(round(0.13 * RATE_HZ)) / RATE_HZ
            phase = 2 * np.pi * pitch_hz * (1 - 0.04 * number) * time
            voice = np.sum([np.sin(n * phase) / n for n in range(1, 9)], axis=0)
            burst = (voice + generator.standard_normal(len(time))) * np.sin(np.pi * time / 0.13)
            pieces += [(0.05 * burst).astype(np.float32), silence(0.07)]
        pieces.append(silence(generator.uniform(0.5, 1.5)))
    return np.concatenate(pieces)[: round(seconds * RATE_HZ)]


class Studio:
    """The recordings, each kind in an order of its own that never changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listed = json.loads((folder / "manifest.json").read_text("utf-8"))
        self.music = [_read(path) for path in sorted((folder / "music").glob("*.wav"))]

    def utterances(
        self, purpose: str, language: str, count: int, shortest_s: float, longest_s: float, also: str = ""
    ) -> list[Utterance]:
        """So many, drawn by `purpose`, those that say `also` before all others."""
        fitting = [
            each
            for each in self._listed
            if each["language"] == language and shortest_s <= each["seconds"] <= longest_s
        ]
        fitting.sort(key=lambda each: (not (also and also in each["text"]), _draw(purpose, each["id"])))
        drawn = sorted(fitting[:count], key=lambda each: _draw(f"order of {purpose}", each["id"]))
        return [self._utterance(each) for each in drawn]

    def _utterance(self, listed: dict[str, str]) -> Utterance:
        text = " ".join(listed["text"].split())
        return Utterance(listed["id"], text, listed["language"], _read(self._folder / listed["path"]))

    def held_out(self, language: str, count: int) -> list[Utterance]:
        """So many with different texts, none of them in the mixes by which live turns are judged."""
        judged = self.utterances("turns", language, TURNS[language], 1.0, 9)
        judged += self.utterances("conv", language, 23, 1.5, 9)
        known, kept = {each.id for each in judged}, dict[str, Utterance]()
        for each in self.utterances("heldout", language, len(self._listed), 1.0, 9):
            if each.id not in known:
                kept.setdefault(each.text.lower(), each)
        return list(kept.values())[:count]


def _draw(purpose: str, name: str) -> str:
    return hashlib.sha256(f"{purpose}/{name}".encode()).hexdigest()


def _read(path: Path) -> Samples:
    samples, rate_hz = soundfile.read(path, dtype="float32")
    assert rate_hz == RATE_HZ, f"{path} is at {rate_hz} Hz"
    return np.asarray(samples, np.float32)


def conversation(utterances: Iterable[Utterance], pauses_s: Sequence[float]) -> Mix:
    """One after the other, with these pauses in turn."""
    mix = Mix([silence(0.4)])
    for number, utterance in enumerate(utterances):
        mix.say(utterance, pauses_s[number % len(pauses_s)])
    return mix


def without_pause(utterances: Iterable[Utterance], at_least_s: float) -> Mix:
    """Speech whose silences are cut to 60 ms, until it is so long."""
    mix = Mix()
    for each in utterances:
        loud = np.abs(each.samples) > 0.02 * np.abs(each.samples).max()
        near = np.convolve(loud, np.ones(round(0.06 * RATE_HZ)), "same") > 0
        mix.say(Utterance(each.id, each.text, each.language, each.samples[near]))
        if mix.seconds >= at_least_s:
            break
    return mix


def hostile(studio: Studio) -> Mix:
    """Silence, music and noise between utterances, loud and for long."""
    mix = conversation(studio.utterances("hostile", "en", 12, 2, 9)[:4], [0.7])
    later = studio.utterances("hostile", "en", 12, 2, 9)[4:]
    mix.sound(silence(45))
    for utterance in later[:3]:
        mix.say(utterance, 0.6)
    mix.sound(studio.music[0][: 30 * RATE_HZ])
    for utterance in later[3:6]:
        mix.say(utterance, 0.6)
    mix.sound(0.03 * pink_noise(30 * RATE_HZ, seed=1))
    for utterance in later[6:]:
        mix.say(utterance, 0.6)
    return mix


def languages(studio: Studio) -> Mix:
    """English, Spanish, French, Italian and Russian in turn, a sentence each, three times."""
    spoken = [studio.utterances("langs", name, 3, 4, 9) for name in ("en", "es", "fr", "it", "ru")]
    return conversation([of[turn] for turn in range(3) for of in spoken], [0.8])


def mixes(studio: Studio) -> dict[str, Mix]:
    """All of them by name."""
    long = conversation(
        studio.utterances("long", "en", 75, 2.5, 20, also="send this caller"), [0.3, 0.6, 1.0, 0.45, 1.6]
    )
    conv = conversation(studio.utterances("conv", "en", 23, 1.5, 9), [0.8, 1.2, 2.0, 0.7])
    short = conversation(studio.utterances("short", "en", 10, 3, 9), [0.8])
    made = {
        "long": long,
        "long_n10": long.changed(lambda samples: with_noise(samples, 10, seed=2)),
        "hostile": hostile(studio),
        "langs": languages(studio),
        "conv": conv,
        "conv_n5": conv.changed(lambda samples: with_noise(samples, 5, seed=3)),
        "nopause": without_pause(studio.utterances("nopause", "en", 60, 3, 20), 150),
        "short": short,
        "short_telephone": short.changed(over_telephone),
        "short_reverberation": short.changed(lambda samples: with_reverberation(samples, seed=4)),
        "short_clipped": short.changed(lambda samples: np.clip(15 * samples, -1, 1)),
        "music_behind": short.changed(
            lambda samples: samples + 0.15 * np.resize(studio.music[1], len(samples))
        ),
        "only_music": Mix([piece[: 12 * RATE_HZ] for piece in studio.music]),
        "noise": Mix([0.05 * pink_noise(60 * RATE_HZ, seed=5)]),
        "laughter": Mix([laughter(30, seed=6)]),
        "silence": Mix([silence(40)]),
    }
    for decibels in (-30, -40, -50):
        made[f"short_peak{decibels}"] = short.changed(partial(with_peak, decibels=decibels))
    for language, count in TURNS.items():
        made[f"turns_{language}"] = conversation(
            studio.utterances("turns", language, count, 1.0, 9), [0.9, 1.3, 2.0, 0.8]
        )
    made["held_out"] = conversation(studio.held_out("en", NUM_HELD_OUT), [0.9, 1.3, 2.0, 0.8])
    for number, piece in enumerate(studio.music):
        made[f"music{number}"] = Mix([piece[: 28 * RATE_HZ]])
    return made


def turn_of(part: Mapping[str, Any]) -> dict[str, object]:
    """A part as `sensorium bench` reads it."""
    start_ms, end_ms = round(1000 * part["start"]), round(1000 * part["end"])
    return {"text": part["text"], "language": part["language"], "start_ms": start_ms, "end_ms": end_ms}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("human", type=Path, help="folder with manifest.json, wav/ and music/")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    listed = []
    for name, mix in mixes(Studio(arguments.human)).items():
        path = f"{name}.wav"
        # Sixteen bits: what is at -50 dB keeps seven of them, as it would on a telephone.
        soundfile.write(arguments.out / path, mix.samples(), RATE_HZ, subtype="PCM_16")
        if mix.parts:
            turns = {"file": path, "turns": [turn_of(part) for part in mix.parts]}
            document = json.dumps(turns, ensure_ascii=False, indent=1)
            (arguments.out / f"{name}.json").write_text(document + "\n", "utf-8")
        spoken = {str(part["language"]) for part in mix.parts}
        listed.append(
            {
                "id": name,
                "path": path,
                "seconds": round(mix.seconds, 2),
                "language": spoken.pop() if len(spoken) == 1 else "",
                "text": " ".join(str(part["text"]) for part in mix.parts),
                "parts": mix.parts,
            }
        )
        print(f"{name:20s} {mix.seconds:6.1f} s {len(mix.parts):3d} utterances", flush=True)
    text = json.dumps(listed, ensure_ascii=False, indent=1)
    (arguments.out / "manifest.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
