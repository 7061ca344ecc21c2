"""How well tiny-whisper hears: word error rates on sentences and voices it never met.

Goes the way a user would: real audio, `WhisperFeatureExtractor`, the exported folder,
`generate`. Half of the sentences are spoken by training voices, half by the held-out one.
"""

import itertools
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from sensorium.client.bench.statistics import edit_distance
from speech_grammar import LANGUAGES, Language
from speech_synthesis import HELD_OUT_VOICES, SAMPLE_RATE_HZ, VOICES, Audio, Recording, Speaker, Studio
from transformers import WhisperForConditionalGeneration, WhisperProcessor
from transformers.models.whisper.english_normalizer import BasicTextNormalizer

_BATCH_SIZE = 25
_NUM_SILENT = 100
_NUM_ALIGNED = 60


def held_out_recordings(language: Language, count: int, seed: int) -> list[tuple[Recording, str]]:
    """Different sentences with their voice, every second one by the held-out voice."""
    studio = _studio(seed)
    rng = random.Random(f"{seed}/held out voices")
    recordings: dict[str, tuple[Recording, str]] = {}
    for index in itertools.count():
        if len(recordings) == count:
            break
        held_out = len(recordings) % 2 == 1
        voice = HELD_OUT_VOICES[language] if held_out else rng.choice(VOICES[language])
        recording = studio.held_out_recording(index, language, voice)
        recordings.setdefault(recording.text, (recording, voice))
    return list(recordings.values())


def word_errors(reference: str, hypothesis: str) -> tuple[int, int]:
    """Substitutions, insertions and deletions, and the reference's words."""
    normalise = BasicTextNormalizer()
    expected, recognized = normalise(reference).split(), normalise(hypothesis).split()
    return edit_distance(expected, recognized), len(expected)


@dataclass(slots=True)
class Recogniser:
    """The exported folder in `transformers`, greedy."""

    folder: Path
    processor: WhisperProcessor = field(init=False)
    model: Any = field(init=False)

    def __post_init__(self) -> None:
        self.processor = WhisperProcessor.from_pretrained(str(self.folder))
        model = WhisperForConditionalGeneration.from_pretrained(str(self.folder), attn_implementation="eager")
        self.model = model.eval()

    def texts(self, audio: list[Audio], language: Language | None) -> list[str]:
        """The transcripts; without a language each recording's own is detected first."""
        texts: list[str] = []
        for start in range(0, len(audio), _BATCH_SIZE):
            features = self.features(audio[start : start + _BATCH_SIZE])
            languages = [language] * len(features) if language else self.languages(features)
            with torch.no_grad():
                ids = self.model.generate(features, language=languages, task="transcribe")
            texts += self.processor.batch_decode(ids, skip_special_tokens=True)
        return texts

    def features(self, audio: list[Audio]) -> torch.Tensor:
        """float32 [batch, 80, 800]."""
        extractor = cast(Any, self.processor).feature_extractor
        inputs = extractor(audio, sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt")
        return cast(torch.Tensor, inputs["input_features"])

    def languages(self, features: torch.Tensor) -> list[Language]:
        """The most likely language of every row."""
        tokens = {self.model.generation_config.lang_to_id[f"<|{name}|>"]: name for name in LANGUAGES}
        with torch.no_grad():
            ids = self.model.detect_language(features)
        return [tokens[int(token)] for token in ids]

    def word_start_errors_s(self, recordings: list[Recording], language: Language) -> list[float]:
        """Distance of aligned from true word starts, where the text is exactly right."""
        tokenizer = cast(Any, self.processor).tokenizer
        errors: list[float] = []
        for recording in recordings:
            with torch.no_grad():
                output = self.model.generate(
                    self.features([recording.audio]),
                    language=language,
                    task="transcribe",
                    return_token_timestamps=True,
                    return_dict_in_generate=True,
                )
            ids, times = output["sequences"][0].tolist(), output["token_timestamps"][0].tolist()
            spoken = [(i, t) for i, t in zip(ids, times, strict=True) if i < tokenizer.eos_token_id]
            if tokenizer.decode([i for i, _ in spoken]).strip() != recording.text:
                continue
            starts = [t for i, t in spoken if tokenizer.decode([i]).startswith(" ")]
            words = [word for sentence in recording.sentences for word in sentence.words]
            errors += [abs(t - w.start_s) for t, w in zip(starts, words, strict=False)]
        return errors


def word_error_rate(folder: Path, num_per_language: int, seed: int) -> float:
    """A quick pooled rate over a few held-out sentences, the language given."""
    recogniser = Recogniser(folder)
    wrong = total = 0
    for language in LANGUAGES:
        pairs = held_out_recordings(language, num_per_language, seed)
        texts = recogniser.texts([recording.audio for recording, _ in pairs], language)
        for (recording, _), text in zip(pairs, texts, strict=True):
            errors, words = word_errors(recording.text, text)
            wrong, total = wrong + errors, total + words
    return wrong / total


def evaluate(folder: Path, num_per_language: int, seed: int) -> str:
    """The table of figures the model card quotes."""
    recogniser = Recogniser(folder)
    lines = ["language  voices    sentences   WER   WER, language detected   detected right"]
    pooled = np.zeros(5)
    for language in LANGUAGES:
        pairs = held_out_recordings(language, num_per_language, seed)
        audio = [recording.audio for recording, _ in pairs]
        given, detected = recogniser.texts(audio, language), recogniser.texts(audio, None)
        names = [
            name
            for start in range(0, len(audio), _BATCH_SIZE)
            for name in recogniser.languages(recogniser.features(audio[start : start + _BATCH_SIZE]))
        ]
        groups = {"training": np.zeros(5), "held out": np.zeros(5)}
        for (recording, voice), one, other, name in zip(pairs, given, detected, names, strict=True):
            wrong, words = word_errors(recording.text, one)
            wrong_detected, _ = word_errors(recording.text, other)
            group = "held out" if voice == HELD_OUT_VOICES[language] else "training"
            groups[group] += (1, words, wrong, wrong_detected, name == language)
        for group, sums in groups.items():
            lines.append(_table_line(language, group, sums))
            pooled += sums
    lines.append(_table_line("all", "all", pooled))
    lines.append(silence_line(recogniser.texts(recordings_without_speech(seed), "en")))
    lines += [_alignment_line(recogniser, language, seed) for language in LANGUAGES]
    return "\n".join(lines)


def _table_line(language: str, group: str, sums: npt.NDArray[np.float64]) -> str:
    count, words, wrong, wrong_detected, right = sums
    return (
        f"{language:8s}  {group:8s}  {count:9.0f} {wrong / words:6.2%}"
        f" {wrong_detected / words:23.2%} {right / count:16.2%}"
    )


def recordings_without_speech(seed: int) -> list[Audio]:
    """Noise and silence."""
    rng = random.Random(f"{seed}/silence")
    return [_studio(seed).without_speech(rng).audio for _ in range(_NUM_SILENT)]


def silence_line(texts: list[str]) -> str:
    """What was heard in recordings without speech."""
    empty = sum(not text.strip() for text in texts)
    return f"recordings without speech: {empty} of {len(texts)} have an empty transcript"


def _alignment_line(recogniser: Recogniser, language: Language, seed: int) -> str:
    recordings = [recording for recording, _ in held_out_recordings(language, _NUM_ALIGNED, seed)]
    errors = recogniser.word_start_errors_s(recordings, language)
    if not errors:
        return f"word starts, {language}: no sentence was entirely right"
    middle, late = np.quantile(errors, [0.5, 0.9])
    return (
        f"word starts, {language}: {middle * 1000:.0f} ms off in the median, "
        f"{late * 1000:.0f} ms at the ninth decile ({len(errors)} words)"
    )


# One speaker a process: espeak-ng keeps global state.
_speaker = cache(Speaker)


@cache
def _studio(seed: int) -> Studio:
    return Studio(seed, _speaker())
