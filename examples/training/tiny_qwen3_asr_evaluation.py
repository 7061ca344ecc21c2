"""How well tiny-qwen3-asr hears: word error rates for every kind of speech, none of which it was trained on.

By `transformers`, greedy, the language detected, on the exported folder, from audio as the server gets it.
Every second recording is by a voice that no model was trained with. `tiny_qwen3_asr_questions.py` makes the
recordings.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from checkpoint_files import MESSAGE_END, MESSAGE_START
from contexts import context
from sensorium import LocalEngine
from sensorium.actors.local.speech import TranscribeOptions
from sensorium.engine.models.qwen3_asr.windows import num_audio_tokens
from speech_grammar import LANGUAGES
from speech_synthesis import SAMPLE_RATE_HZ, Audio
from tiny_qwen3_asr_model import (
    AUDIO_END,
    AUDIO_PAD,
    AUDIO_START,
    LANGUAGE_NAMES,
    TEXT_TAG,
    feature_extractor,
)
from tiny_qwen3_asr_questions import JOINED, ORDERS, Question, Questions
from tiny_whisper_evaluation import silence_line, word_errors
from tokenizers import Tokenizer
from transformers import Qwen3ASRForConditionalGeneration

MAX_NEW_TOKENS: Final = 320


class Recogniser:
    """The exported folder in `transformers`, one recording at a time."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._extractor = feature_extractor()
        model = Qwen3ASRForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self._model = cast(Any, model).eval()

    def answer(self, audio: Audio, given: str = "") -> tuple[str, str]:
        """The header of the answer, and its text; `told` is the context in the prompt."""
        features = self._extractor(
            audio, sampling_rate=SAMPLE_RATE_HZ, padding="longest", return_attention_mask=True
        )
        num_rows = num_audio_tokens(int(features["attention_mask"].sum()))
        prompt = self._ids(f"{MESSAGE_START}system\n") + self._ids(given)
        prompt += self._ids(f"{MESSAGE_END}\n{MESSAGE_START}user\n{AUDIO_START}")
        prompt += self._ids(AUDIO_PAD) * num_rows
        prompt += self._ids(f"{AUDIO_END}{MESSAGE_END}\n{MESSAGE_START}assistant\n")
        with torch.no_grad():
            output = self._model.generate(
                input_ids=torch.tensor([prompt]),
                input_features=torch.as_tensor(features["input_features"]),
                input_features_mask=torch.as_tensor(features["attention_mask"]),
                max_new_tokens=MAX_NEW_TOKENS,
                do_sample=False,
            )
        answer = self._tokenizer.decode(output[0, len(prompt) :].tolist())
        header, _, text = answer.partition(TEXT_TAG)
        return header, text

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def evaluate(folder: Path, words: Path, count: int, seed: int) -> str:
    """The table of figures the model card quotes; `count` recordings of each kind and language."""
    recogniser = Recogniser(folder)
    questions = Questions(words, seed)
    lines = [
        f"{'kind':10s} {'number':>6s} {'  '.join(f'{name:>6s}' for name in (*LANGUAGES, 'all'))}  language"
    ]
    lines += [_kind_line(recogniser, kind, questions.of_kind(kind, count)) for kind in ORDERS]
    lines += [_kind_line(recogniser, kind, questions.joined(kind, max(1, count // 4))) for kind in JOINED]
    with LocalEngine(folder, dtype="float32") as engine:
        lines += _context_lines(recogniser, engine, questions.of_kind("rare", count))
        lines += _unrelated_lines(engine, questions, count)
    silent = [recogniser.answer(audio)[1] for audio in questions.silent(count)]
    return "\n".join([*lines, silence_line(silent)])


def _kind_line(recogniser: Recogniser, kind: str, chosen: Sequence[Question]) -> str:
    wrong = dict.fromkeys(LANGUAGES, 0)
    words = dict.fromkeys(LANGUAGES, 0)
    right = 0
    for question in chosen:
        header, text = recogniser.answer(question.audio)
        errors, length = word_errors(question.text, text)
        wrong[question.language] += errors
        words[question.language] += length
        right += header == f"language {LANGUAGE_NAMES[question.language]}"
    rates = [wrong[name] / max(1, words[name]) for name in LANGUAGES]
    rates.append(sum(wrong.values()) / max(1, sum(words.values())))
    shown = "  ".join(f"{rate:6.1%}" for rate in rates)
    return f"{kind:10s} {len(chosen):6d} {shown}  {right / len(chosen):8.1%}"


def _recognized_by(engine: LocalEngine, audio: Audio, keywords: Sequence[str]) -> str:
    """What the server makes of it, where keywords are likelier besides being told."""
    options = TranscribeOptions(keywords=keywords, timestamp_granularities=[])
    return engine.transcribe((audio, SAMPLE_RATE_HZ), **options).text


def _context_lines(recogniser: Recogniser, engine: LocalEngine, chosen: Sequence[Question]) -> list[str]:
    """Invented words that are written right, and all words, when the model is told of them in other ways."""
    lines = [f"{'told':10s} {'number':>6s}  invented words right     WER"]
    for way in ("nothing", "keywords", "prompt", "likelier"):
        right = total = wrong = words = 0
        for question in chosen:
            match way:
                case "keywords":
                    given = context(question.keywords, "")
                case "prompt":
                    given = context((), question.prompt)
                case _:
                    given = ""
            if way == "likelier":
                text = _recognized_by(engine, question.audio, question.keywords)
            else:
                text = recogniser.answer(question.audio, given)[1]
            recognized = text.replace(".", "").split()
            right += sum(word in recognized for word in question.invented)
            total += len(question.invented)
            errors, length = word_errors(question.text, text)
            wrong, words = wrong + errors, words + length
        lines.append(f"{way:10s} {total:6d}  {right / max(1, total):20.1%}  {wrong / max(1, words):6.1%}")
    return lines


def _unrelated_lines(engine: LocalEngine, questions: Questions, count: int) -> list[str]:
    """Likelier words that have nothing to do with the audio must change nothing."""
    chosen = questions.of_kind("grammar", count)
    strangers = questions.of_kind("rare", count)
    pooled = np.zeros(2, int)
    for question, unrelated in zip(chosen, strangers, strict=True):
        text = _recognized_by(engine, question.audio, unrelated.keywords)
        pooled += word_errors(question.text, text)
    return [f"grammar with keywords of something else, likelier: WER {pooled[0] / pooled[1]:.1%}"]
