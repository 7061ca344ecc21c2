"""Spoken sentences with word times, made with espeak-ng and a little acoustics.

`Speaker` drives libespeak-ng through ctypes (no subprocess per sentence, and its word
events give the time of every word). `Studio` draws whole recordings from it: one to three
sentences, pauses, room, noise, sometimes cut off in mid-word as live audio is. It knows
no model: the sentences come from `speech_grammar.py`, what is made of the audio is up to
the training scripts.
"""

import ctypes
import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import soxr
from speech_grammar import LANGUAGES, Grammar, Language, load_grammar

Audio = npt.NDArray[np.float32]

SAMPLE_RATE_HZ = 16_000
MAX_RECORDING_S = 7.9
# A word counts as heard when this share of it came before the cut.
AUDIBLE_SHARE = 0.85
# A sentence is over, and gets its full stop, when its last word ended this long ago.
SENTENCE_END_S = 0.15

# Order matters: accents with fewer voices take the first of these.
_VARIANTS = (
    *("m1", "m2", "m3", "m5", "m6", "m7", "m8", "f1", "f2", "f4", "f5", "Andy", "Annie", "Alicia"),
    *("Lee", "Mario", "Michael", "Marco", "adam", "linda", "max", "john", "pablo", "steph", "victor"),
)
VOICES: dict[Language, tuple[str, ...]] = {
    "en": (
        "en-us",
        "en",
        *(f"en-us+{variant}" for variant in _VARIANTS),
        *(f"en+{variant}" for variant in _VARIANTS[:14]),
        *(f"en-gb-x-rp+{variant}" for variant in _VARIANTS[:8]),
        *(f"en-029+{variant}" for variant in _VARIANTS[:4]),
    ),
    "es": (
        "es",
        "es-419",
        *(f"es+{variant}" for variant in _VARIANTS),
        *(f"es-419+{variant}" for variant in _VARIANTS),
    ),
    "de": ("de", *(f"de+{variant}" for variant in _VARIANTS)),
}
# Never in VOICES in any accent, so that its timbre is new to a model.
HELD_OUT_VOICES: dict[Language, str] = {"en": "en-us+m4", "es": "es+f3", "de": "de+m4"}

_SYNCHRONOUS, _UTF8, _RATE, _PITCH, _RANGE = 2, 1, 1, 3, 4
_WORD_EVENT = 1


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    ]


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


@dataclass(frozen=True, slots=True)
class Word:
    """A written word with its punctuation and when it was spoken, from the recording's start."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Sentence:
    """What was said of a sentence; `finished` is false when the recording broke off."""

    words: tuple[Word, ...]
    finished: bool = True

    @property
    def text(self) -> str:
        text = " ".join(word.text for word in self.words)
        return text if self.finished else text.rstrip(".,?!")


@dataclass(frozen=True, slots=True)
class Recording:
    """Audio at 16 kHz in -1 to 1 and what is said in it; no sentences where nobody speaks.

    `speech_s` is how long someone was heard speaking, also words too short to be counted.
    """

    audio: Audio
    language: Language
    sentences: tuple[Sentence, ...]
    speech_s: float = 0.0

    @property
    def text(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences)


class Speaker:
    """libespeak-ng in this process; the library holds global state, so make one only."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libespeak-ng.so.1")
        self._chunks: list[npt.NDArray[np.int16]] = []
        self._word_events: list[tuple[int, int]] = []
        # ctypes does not keep the callback alive, this attribute does.
        self._callback = _CALLBACK(self._received)
        self._rate_hz: int = self._library.espeak_Initialize(_SYNCHRONOUS, 0, None, 0)
        if self._rate_hz <= 0:
            raise RuntimeError("espeak-ng did not start; is the espeak-ng package installed?")
        self._library.espeak_SetSynthCallback(self._callback)
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p

    def speak(
        self, text: str, voice: str, words_per_minute: int = 170, pitch: int = 50, spread: int = 50
    ) -> tuple[Audio, tuple[Word, ...]]:
        """One sentence without the silence around it, and its words' times."""
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise ValueError(f"espeak-ng has no voice {voice!r}")
        for parameter, value in ((_RATE, words_per_minute), (_PITCH, pitch), (_RANGE, spread)):
            self._library.espeak_SetParameter(parameter, value, 0)
        self._chunks.clear()
        self._word_events.clear()
        data = text.encode()
        self._library.espeak_Synth(data, len(data) + 1, 0, 1, 0, _UTF8, None, None)
        spoken = np.concatenate(self._chunks).astype(np.float32) / 32768
        loud = np.flatnonzero(np.abs(spoken) > 0.02 * np.abs(spoken).max())
        first, last = int(loud[0]), int(loud[-1]) + 1
        starts = self._word_starts_s(text, first, last)
        audio = soxr.resample(spoken[first:last], self._rate_hz, SAMPLE_RATE_HZ, quality="MQ")
        ends = [*starts[1:], (last - first) / self._rate_hz]
        words = tuple(map(Word, text.split(), starts, ends))
        return np.ascontiguousarray(audio, dtype=np.float32), words

    def phonemes(self, text: str, voice: str) -> str:
        """How the voice says it, in espeak-ng's letters."""
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise ValueError(f"espeak-ng has no voice {voice!r}")
        # The library moves the pointer behind the clause it has read, and to nothing at the end.
        rest = ctypes.c_char_p(text.encode())
        parts: list[str] = []
        while rest.value is not None:
            parts.append(self._library.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, 0).decode())
        return " ".join(parts)

    def _received(
        self, wave: "ctypes._Pointer[ctypes.c_short]", num_samples: int, events: "ctypes._Pointer[_Event]"
    ) -> int:
        if wave and num_samples > 0:
            self._chunks.append(np.ctypeslib.as_array(wave, (num_samples,)).copy())
        index = 0
        while events[index].type != 0:
            if events[index].type == _WORD_EVENT:
                self._word_events.append((events[index].text_position - 1, events[index].sample))
            index += 1
        return 0

    def _word_starts_s(self, text: str, first: int, last: int) -> list[float]:
        """Word starts from `first`; espeak-ng gives phrases such as "in the" one event."""
        positions = [index for index in range(len(text)) if _starts_word(text, index)]
        by_word: dict[int, float] = {}
        for position, sample in self._word_events:
            word = max((i for i, p in enumerate(positions) if p <= position + 1), default=0)
            # Behind a comma espeak-ng reports a word twice, and late the second time.
            by_word.setdefault(word, float(min(max(sample, first), last)))
        by_word[0] = float(first)
        anchors = [*sorted(by_word), len(positions)]
        starts: list[float] = []
        for left, right in pairwise(anchors):
            begin, end = by_word[left], by_word.get(right, float(last))
            edges = [*positions[left:right], positions[right] if right < len(positions) else len(text)]
            for edge in edges[:-1]:
                share = (edge - edges[0]) / max(1, edges[-1] - edges[0])
                starts.append((begin + share * (end - begin) - first) / self._rate_hz)
        return starts


def _starts_word(text: str, index: int) -> bool:
    return not text[index].isspace() and (index == 0 or text[index - 1].isspace())


@dataclass(slots=True)
class Studio:
    """Draws recordings for training or evaluation; seed and index determine each.

    espeak-ng keeps a little state from sentence to sentence: for the same samples to the
    last bit, draw the same recordings in the same order in a fresh process.
    """

    seed: int
    speaker: Speaker = field(default_factory=Speaker)

    def recording(self, index: int) -> Recording:
        """Training recording number `index`: words, voice, room and cut do not depend on others."""
        rng = random.Random(f"{self.seed}/{index}")
        if rng.random() < 0.03:
            return self.without_speech(rng)
        language = rng.choice(LANGUAGES)
        grammar = load_grammar(language)
        count = 1 if (draw := rng.random()) < 0.6 else 2 if draw < 0.88 else 3
        texts = [grammar.training_sentence(rng) for _ in range(count)]
        clean = self.spoken(texts, language, rng.choice(VOICES[language]), rng)
        recording = in_a_room(clean, rng)
        if rng.random() < 0.3:
            recording = cut(recording, _cut_time_s(recording, rng))
        return recording

    def held_out_recording(self, index: int, language: Language, voice: str) -> Recording:
        """One sentence reserved for evaluation, with a room and noise as in training."""
        rng = random.Random(f"{self.seed}/held out/{language}/{index}")
        text = load_grammar(language).held_out_sentence(rng)
        return in_a_room(self.spoken([text], language, voice, rng), rng)

    def spoken(self, texts: list[str], language: Language, voice: str, rng: random.Random) -> Recording:
        """The sentences by one voice with silence before, between and after them.

        Sentences that would pass the longest recording are left out.
        """
        rate, pitch = rng.randint(135, 205), rng.randint(25, 75)
        spread = rng.randint(30, 70)
        # Most begin at once; the rest teach that speech may come late in the window.
        lead_s = rng.uniform(0, 0.7) if rng.random() < 0.9 else rng.uniform(0.7, 3)
        pieces = [np.zeros(int(lead_s * SAMPLE_RATE_HZ), dtype=np.float32)]
        sentences: list[Sentence] = []
        speech_s = 0.0
        for text in texts:
            audio, words = self.speaker.speak(text, voice, rate, pitch, spread)
            start_s = sum(map(len, pieces)) / SAMPLE_RATE_HZ
            if start_s + len(audio) / SAMPLE_RATE_HZ > MAX_RECORDING_S and sentences:
                break
            sentences.append(Sentence(tuple(_shifted(word, start_s) for word in words)))
            speech_s += len(audio) / SAMPLE_RATE_HZ
            pause_s = rng.uniform(0.15, 0.9)
            pieces += [audio, np.zeros(int(pause_s * SAMPLE_RATE_HZ), dtype=np.float32)]
        pieces[-1] = np.zeros(int(rng.uniform(0, 1.2) * SAMPLE_RATE_HZ), dtype=np.float32)
        recording = Recording(np.concatenate(pieces), language, tuple(sentences), speech_s)
        return cut(recording, MAX_RECORDING_S)

    def without_speech(self, rng: random.Random) -> Recording:
        """Silence, hiss, rumble or hum at a random level, 0.3 to 7.9 s."""
        num_samples = int(rng.uniform(0.3, MAX_RECORDING_S) * SAMPLE_RATE_HZ)
        level = 0.0 if rng.random() < 0.2 else 10 ** rng.uniform(-4, -1.2)
        audio = level * noise(num_samples, rng)
        return Recording(audio, rng.choice(LANGUAGES), ())


def _shifted(word: Word, by_s: float) -> Word:
    return replace(word, start_s=word.start_s + by_s, end_s=word.end_s + by_s)


def _cut_time_s(recording: Recording, rng: random.Random) -> float:
    """Anywhere in the speech; sometimes before the first word is complete."""
    first = recording.sentences[0].words[0]
    end_s = recording.sentences[-1].words[-1].end_s
    if rng.random() < 0.12:
        return rng.uniform(0.1, max(0.15, first.end_s))
    return rng.uniform(first.start_s, end_s + 0.2)


def cut(recording: Recording, at_s: float) -> Recording:
    """The recording's first `at_s` seconds with exactly the words heard until then."""
    if at_s >= len(recording.audio) / SAMPLE_RATE_HZ:
        return recording
    sentences: list[Sentence] = []
    speech_s = 0.0
    for sentence in recording.sentences:
        audible = tuple(
            replace(word, end_s=min(word.end_s, at_s))
            for word in sentence.words
            if at_s >= word.start_s + AUDIBLE_SHARE * (word.end_s - word.start_s)
        )
        speech_s += max(0.0, min(at_s, sentence.words[-1].end_s) - sentence.words[0].start_s)
        if audible:
            finished = sentence.finished and at_s >= sentence.words[-1].end_s + SENTENCE_END_S
            sentences.append(Sentence(audible, finished))
    audio = recording.audio[: int(at_s * SAMPLE_RATE_HZ)]
    return Recording(audio, recording.language, tuple(sentences), speech_s)


def in_a_room(recording: Recording, rng: random.Random) -> Recording:
    """The recording at a random level, with reverberation and noise on part of the draws."""
    audio = recording.audio
    peak = max(float(np.abs(audio).max()), 1e-6)
    if rng.random() < 0.35:
        audio = reverberated(audio, rng)
    audio = audio * np.float32(rng.uniform(0.12, 0.9) / max(peak, float(np.abs(audio).max())))
    if rng.random() < 0.65:
        speech_rms = float(np.sqrt(np.mean(audio**2))) + 1e-6
        snr_db = rng.uniform(12, 40)
        audio = audio + np.float32(speech_rms * 10 ** (-snr_db / 20)) * noise(len(audio), rng)
    return replace(recording, audio=np.clip(audio, -1, 1).astype(np.float32))


def noise(num_samples: int, rng: random.Random) -> Audio:
    """White, pink or brown noise or mains hum with root mean square 1."""
    generator = np.random.default_rng(rng.getrandbits(64))
    kind = rng.choice(("white", "pink", "brown", "hum"))
    if kind == "hum":
        time_s = np.arange(num_samples) / SAMPLE_RATE_HZ
        base_hz = rng.choice((50.0, 60.0, 100.0, 120.0))
        tones = [rng.uniform(0, 1) * np.sin(2 * np.pi * base_hz * k * time_s) for k in range(1, 6)]
        wave = np.sum(tones, axis=0) + 0.05 * generator.standard_normal(num_samples)
    else:
        slope = {"white": 0.0, "pink": 0.5, "brown": 1.0}[kind]
        spectrum = np.fft.rfft(generator.standard_normal(num_samples))
        spectrum /= np.maximum(1, np.arange(len(spectrum))) ** slope
        wave = np.fft.irfft(spectrum, num_samples)
    return np.asarray(wave / (np.sqrt(np.mean(wave**2)) + 1e-9), dtype=np.float32)


def reverberated(audio: Audio, rng: random.Random) -> Audio:
    """The audio with an exponentially fading noise tail (60 dB in 0.1 to 0.35 s) behind it."""
    generator = np.random.default_rng(rng.getrandbits(64))
    fade_s = rng.uniform(0.1, 0.35)
    time_s = np.arange(int(fade_s * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    tail = generator.standard_normal(len(time_s)) * 10 ** (-3 * time_s / fade_s)
    tail[0] = 0
    response = tail * (rng.uniform(0.1, 0.5) / np.sqrt(np.sum(tail**2)))
    response[0] = 1
    size = 1 << (len(audio) + len(response) - 1).bit_length()
    wet = np.fft.irfft(np.fft.rfft(audio, size) * np.fft.rfft(response, size), size)
    return wet[: len(audio)].astype(np.float32)


def training_texts(count: int, seed: int) -> list[str]:
    """Sentences as the recordings have them, for training a tokenizer."""
    rng = random.Random(f"{seed}/texts")
    grammars: list[Grammar] = [load_grammar(language) for language in LANGUAGES]
    return [rng.choice(grammars).training_sentence(rng) for _ in range(count)]
