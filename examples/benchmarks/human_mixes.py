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
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from hostile_sounds import (
    RATE_HZ,
    Samples,
    at_tempo,
    far_away,
    laughter,
    over_opus,
    over_telephone,
    pink_noise,
    silence,
    with_noise,
    with_peak,
    with_reverberation,
    with_sound,
)

TURNS = {"en": 150, "es": 40, "fr": 40, "it": 40, "ru": 40}
"""How many utterances the mixes have by which live turns are judged."""
NUM_HELD_OUT = 130
"""Utterances of a mix that has none of theirs: what is chosen by those is measured with these."""
NUM_SPEAKERS = 6
"""Who say the same utterances between them, each another share: for speakers side by side."""


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

    def add(self, utterance: Utterance, then_s: float = 0.0) -> None:
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
        mix.add(utterance, pauses_s[number % len(pauses_s)])
    return mix


def without_pause(utterances: Iterable[Utterance], at_least_s: float) -> Mix:
    """Speech whose silences are cut to 60 ms, until it is so long."""
    mix = Mix()
    for each in utterances:
        loud = np.abs(each.samples) > 0.02 * np.abs(each.samples).max()
        near = np.convolve(loud, np.ones(round(0.06 * RATE_HZ)), "same") > 0
        mix.add(Utterance(each.id, each.text, each.language, each.samples[near]))
        if mix.seconds >= at_least_s:
            break
    return mix


def hostile(studio: Studio, name: str, piece: int = 0) -> Mix:
    """Silence, music and noise between utterances, loud and for long."""
    mix = conversation(studio.utterances(name, "en", 12, 2, 9)[:4], [0.7])
    later = studio.utterances(name, "en", 12, 2, 9)[4:]
    mix.sound(silence(45))
    for utterance in later[:3]:
        mix.add(utterance, 0.6)
    mix.sound(studio.music[piece][: 30 * RATE_HZ])
    for utterance in later[3:6]:
        mix.add(utterance, 0.6)
    mix.sound(0.03 * pink_noise(30 * RATE_HZ, seed=1))
    for utterance in later[6:]:
        mix.add(utterance, 0.6)
    return mix


def languages(studio: Studio) -> Mix:
    """English, Spanish, French, Italian and Russian in turn, a sentence each, three times."""
    spoken = [studio.utterances("langs", name, 3, 4, 9) for name in ("en", "es", "fr", "it", "ru")]
    return conversation([of[turn] for turn in range(3) for of in spoken], [0.8])


def between_music(studio: Studio) -> Mix:
    """Pairs of prompts with 6 to 9 s of music between them, half a minute each."""
    mix, spoken = Mix(), studio.utterances("between", "en", 10, 3, 7)
    for number, piece in enumerate(studio.music):
        begun_s = mix.seconds
        mix.add(spoken[2 * number], 0.3)
        mix.sound(piece[4 * RATE_HZ : (10 + number % 4) * RATE_HZ])
        mix.add(spoken[2 * number + 1])
        mix.sound(silence(30.0 - (mix.seconds - begun_s)))
    return mix


def spoken_at(tempo: float, utterances: Iterable[Utterance]) -> list[Utterance]:
    """The same, said so many times as fast."""
    return [replace(each, samples=at_tempo(each.samples, tempo)) for each in utterances]


def mixes(studio: Studio) -> dict[str, Mix]:
    """All of them by name."""
    long = conversation(
        studio.utterances("long", "en", 75, 2.5, 20, also="send this caller"), [0.3, 0.6, 1.0, 0.45, 1.6]
    )
    conv = conversation(studio.utterances("conv", "en", 23, 1.5, 9), [0.8, 1.2, 2.0, 0.7])
    short_prompts = studio.utterances("short", "en", 10, 3, 9)
    short = conversation(short_prompts, [0.8])
    made = {
        "long": long,
        "long_n10": long.changed(lambda samples: with_noise(samples, 10, seed=2)),
        "hostile": hostile(studio, "hostile"),
        "langs": languages(studio),
        "conv": conv,
        "conv_n5": conv.changed(lambda samples: with_noise(samples, 5, seed=3)),
        "nopause": without_pause(studio.utterances("nopause", "en", 60, 3, 20), 150),
        "short": short,
        "short_telephone": short.changed(over_telephone),
        "short_reverberation": short.changed(lambda samples: with_reverberation(samples, seed=4)),
        "short_clipped": short.changed(lambda samples: np.clip(15 * samples, -1, 1)),
        "eight": conversation(studio.utterances("eight", "en", 8, 1.9, 5.6), [0.9, 1.3, 0.8]),
        "short_opus": short.changed(over_opus),
        "short_far": short.changed(lambda samples: far_away(samples, seed=7)),
        "short_slow": conversation(spoken_at(0.8, short_prompts), [0.8]),
        "short_fast": conversation(spoken_at(1.3, short_prompts), [0.8]),
        "music_behind": short.changed(
            lambda samples: samples + 0.15 * np.resize(studio.music[1], len(samples))
        ),
        "music_over": short.changed(lambda samples: with_sound(samples, studio.music[3], 5.0)),
        "only_music": Mix([piece[: 12 * RATE_HZ] for piece in studio.music]),
        "between_music": between_music(studio),
        "noise": Mix([0.05 * pink_noise(60 * RATE_HZ, seed=5)]),
        "laughter": Mix([laughter(30, seed=6)]),
        "silence": Mix([silence(40)]),
    }
    for number in range(1, len(studio.music)):
        # A dozen prompts are a hundred words: one that is misheard is a percent.
        made[f"hostile{number + 1}"] = hostile(studio, f"hostile{number + 1}", number)
    for decibels in (-30, -40, -50):
        made[f"short_peak{decibels}"] = short.changed(partial(with_peak, decibels=decibels))
    for language, count in TURNS.items():
        made[f"turns_{language}"] = conversation(
            studio.utterances("turns", language, count, 1.0, 9), [0.9, 1.3, 2.0, 0.8]
        )
    held_out, pauses_s = studio.held_out("en", NUM_HELD_OUT), [0.9, 1.3, 2.0, 0.8]
    made["held_out"] = conversation(held_out, pauses_s)
    for number in range(NUM_SPEAKERS):
        made[f"speaker{number}"] = conversation(held_out[number::NUM_SPEAKERS], pauses_s)
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
