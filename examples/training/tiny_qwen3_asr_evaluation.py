"""How well tiny-qwen3-asr hears: word error rates on sentences and voices it never met.

By `transformers`, greedy, the language detected, on the exported folder. The recordings are those that
`tiny_whisper_evaluation.py` makes.
"""

from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from speech_grammar import LANGUAGES
from speech_synthesis import HELD_OUT_VOICES, SAMPLE_RATE_HZ, Audio
from tiny_qwen3_asr_data import rows_of
from tiny_qwen3_asr_model import (
    AUDIO_END,
    AUDIO_PAD,
    AUDIO_START,
    LANGUAGE_NAMES,
    MESSAGE_END,
    MESSAGE_START,
    TEXT_TAG,
    feature_extractor,
)
from tiny_whisper_evaluation import held_out_recordings, recordings_without_speech, silence_line, word_errors
from tokenizers import Tokenizer
from transformers import Qwen3ASRForConditionalGeneration

_NUM_JOINED = 4
_PAUSE_S = 0.4


class Recogniser:
    """The exported folder in `transformers`, one recording at a time."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._extractor = feature_extractor()
        model = Qwen3ASRForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self._model = cast(Any, model).eval()

    def answer(self, audio: Audio) -> tuple[str, str]:
        """The header of the answer, and its text."""
        features = self._extractor(
            audio, sampling_rate=SAMPLE_RATE_HZ, padding="longest", return_attention_mask=True
        )
        num_rows = rows_of(int(features["attention_mask"].sum()))
        prompt = self._ids(f"{MESSAGE_START}system\n{MESSAGE_END}\n{MESSAGE_START}user\n{AUDIO_START}")
        prompt += self._ids(AUDIO_PAD) * num_rows
        prompt += self._ids(f"{AUDIO_END}{MESSAGE_END}\n{MESSAGE_START}assistant\n")
        with torch.no_grad():
            output = self._model.generate(
                input_ids=torch.tensor([prompt]),
                input_features=torch.as_tensor(features["input_features"]),
                input_features_mask=torch.as_tensor(features["attention_mask"]),
                max_new_tokens=256,
                do_sample=False,
            )
        answer = self._tokenizer.decode(output[0, len(prompt) :].tolist())
        header, _, text = answer.partition(TEXT_TAG)
        return header, text

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def evaluate(folder: Path, num_per_language: int, seed: int) -> str:
    """The table of figures the model card quotes."""
    recogniser = Recogniser(folder)
    lines = ["language  voices    sentences   WER   detected right"]
    pooled = np.zeros(4)
    for language in LANGUAGES:
        groups = {"training": np.zeros(4), "held out": np.zeros(4)}
        for recording, voice in held_out_recordings(language, num_per_language, seed):
            header, text = recogniser.answer(recording.audio)
            wrong, words = word_errors(recording.text, text)
            group = "held out" if voice == HELD_OUT_VOICES[language] else "training"
            groups[group] += (1, words, wrong, header == f"language {LANGUAGE_NAMES[language]}")
        for group, sums in groups.items():
            lines.append(_line(language, group, sums))
            pooled += sums
    lines.append(_line("all", "all", pooled))
    lines.append(_joined_line(recogniser, num_per_language // 4, seed))
    silent = [recogniser.answer(audio)[1] for audio in recordings_without_speech(seed)]
    return "\n".join([*lines, silence_line(silent)])


def _joined_line(recogniser: Recogniser, num_per_language: int, seed: int) -> str:
    """Several sentences behind each other, longer than one window."""
    pause = np.zeros(int(_PAUSE_S * SAMPLE_RATE_HZ), np.float32)
    errors = num_words = num_joined = 0
    seconds = 0.0
    for language in LANGUAGES:
        recordings = [recording for recording, _ in held_out_recordings(language, num_per_language, seed + 1)]
        for first in range(0, len(recordings), _NUM_JOINED):
            part = recordings[first : first + _NUM_JOINED]
            audio = np.concatenate([piece for each in part for piece in (each.audio, pause)])
            wrong, words = word_errors(" ".join(each.text for each in part), recogniser.answer(audio)[1])
            errors, num_words, num_joined = errors + wrong, num_words + words, num_joined + 1
            seconds += len(audio) / SAMPLE_RATE_HZ
    rate, mean_s = errors / max(1, num_words), seconds / max(1, num_joined)
    return f"{_NUM_JOINED} sentences in a row: WER {rate:.2%} ({num_joined} recordings of {mean_s:.0f} s)"


def _line(language: str, group: str, sums: npt.NDArray[np.float64]) -> str:
    count, words, wrong, right = sums
    return f"{language:8s}  {group:8s}  {count:9.0f} {wrong / words:6.2%} {right / count:14.2%}"
