"""The tokenizer of tiny-whisper and the token rows its decoder is trained on.

Vocabulary and prompts follow openai/whisper: text, then special tokens, then timestamps
0.02 s apart. Knows sentences and times, no audio; `tiny_whisper_data.py` makes the audio.
"""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from speech_grammar import LANGUAGES, Language, load_grammar, normalised
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import WhisperTokenizer

NUM_TEXT_TOKENS = 640
WINDOW_S = 8
TIMESTAMP_STEP_S = 0.02
NUM_TIMESTAMPS = round(WINDOW_S / TIMESTAMP_STEP_S) + 1
MAX_TARGET_POSITIONS = 128
IGNORED = -100

END_OF_TEXT = "<|endoftext|>"
START_OF_TRANSCRIPT = "<|startoftranscript|>"
START_OF_PREVIOUS = "<|startofprev|>"
NO_SPEECH = "<|nospeech|>"
NO_TIMESTAMPS = "<|notimestamps|>"
TRANSCRIBE = "<|transcribe|>"
# `WhisperTokenizer.set_prefix_tokens` counts languages in openai/whisper's order, where
# Chinese is second: its token keeps the place and is never used.
SPECIAL_TOKENS = (
    START_OF_TRANSCRIPT,
    "<|en|>",
    "<|zh|>",
    "<|de|>",
    "<|es|>",
    "<|translate|>",
    TRANSCRIBE,
    "<|startoflm|>",
    START_OF_PREVIOUS,
    NO_SPEECH,
    NO_TIMESTAMPS,
)

# The encoder's auxiliary CTC targets: letters, for an alignment to 37 frequent classes is
# found within minutes where one to hundreds of word pieces is not.
LETTERS = " 'abcdefghijklmnopqrstuvwxyzáéíóúñüäöß"

TIMESTAMPS_SHARE = 0.28
PROMPT_SHARE = 0.1
# Less speech than this does not tell its language.
MIN_SPEECH_FOR_LANGUAGE_S = 0.25


@dataclass(frozen=True, slots=True)
class TimedText:
    """One sentence as it is to be written, with its start and end in the recording."""

    text: str
    start_s: float
    end_s: float


def build_tokenizer(texts: Iterable[str]) -> WhisperTokenizer:
    """A byte-level BPE of `NUM_TEXT_TOKENS` over the texts, with Whisper's special tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=NUM_TEXT_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    bpe.train_from_iterator((f" {text}" for text in texts), trainer)
    model = json.loads(bpe.to_str())["model"]
    tokenizer = WhisperTokenizer(
        vocab=model["vocab"],
        merges=[tuple(merge) for merge in model["merges"]],
        pad_token=END_OF_TEXT,
        model_max_length=MAX_TARGET_POSITIONS,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL_TOKENS)})
    # Timestamps are ordinary tokens, as in openai/whisper: `decode` finds the first of them
    # behind the last special token.
    tokenizer.add_tokens(
        [AddedToken(f"<|{i * TIMESTAMP_STEP_S:.2f}|>", normalized=False) for i in range(NUM_TIMESTAMPS)]
    )
    return tokenizer


@dataclass(frozen=True, slots=True)
class Row:
    """Decoder input and, shifted by one, what is to be predicted (`IGNORED` where nothing).

    `letters` is the same text as indices into `LETTERS`.
    """

    inputs: list[int]
    labels: list[int]
    letters: list[int]


class RowMaker:
    """Turns timed sentences into decoder rows with randomly drawn prompt formats."""

    def __init__(self, tokenizer: WhisperTokenizer) -> None:
        def token(name: str) -> int:
            return cast(int, tokenizer.convert_tokens_to_ids(name))

        self._tokenizer = tokenizer
        self._cache: dict[str, list[int]] = {}
        self.end = token(END_OF_TEXT)
        self._start = token(START_OF_TRANSCRIPT)
        self._previous = token(START_OF_PREVIOUS)
        self._transcribe = token(TRANSCRIBE)
        self._no_speech = token(NO_SPEECH)
        self._no_timestamps = token(NO_TIMESTAMPS)
        self._languages = {language: token(f"<|{language}|>") for language in LANGUAGES}
        self._first_timestamp = token("<|0.00|>")

    def row(
        self,
        sentences: Sequence[TimedText],
        language: Language,
        speech_s: float,
        rng: random.Random,
    ) -> Row:
        """One training row; no sentences and no speech asks for `<|nospeech|>`."""
        text = [token for sentence in sentences for token in self._text(sentence.text)]
        spoken = normalised(" ".join(sentence.text for sentence in sentences))
        letters = [LETTERS.index(letter) for letter in spoken]
        body = [self._languages[language], self._transcribe]
        if rng.random() < TIMESTAMPS_SHARE:
            for sentence in sentences:
                body += [self._timestamp(sentence.start_s), *self._text(sentence.text)]
                body.append(self._timestamp(sentence.end_s))
            if not sentences:
                body.append(self._first_timestamp)
            forced = 2
        else:
            body += [self._no_timestamps, *text]
            forced = 3
        body.append(self.end)
        if speech_s == 0.0:
            first = self._no_speech
        elif sentences or speech_s >= MIN_SPEECH_FOR_LANGUAGE_S:
            first = self._languages[language]
        else:
            first = IGNORED
        prefix: list[int] = []
        if rng.random() < PROMPT_SHARE:
            grammar = load_grammar(language)
            for _ in range(rng.randint(1, 2)):
                prefix += self._text(grammar.training_sentence(rng))
            room = MAX_TARGET_POSITIONS - len(body) - 2
            prefix = [self._previous, *prefix[-min(len(prefix), room) :]] if room > 0 else []
        inputs = [*prefix, self._start, *body[:-1]]
        labels = [IGNORED] * len(prefix) + [first] + [IGNORED] * (forced - 1) + body[forced:]
        return Row(inputs[:MAX_TARGET_POSITIONS], labels[:MAX_TARGET_POSITIONS], letters)

    def _text(self, text: str) -> list[int]:
        ids = self._cache.get(text)
        if ids is None:
            ids = cast(list[int], self._tokenizer.encode(f" {text}", add_special_tokens=False))
            self._cache[text] = ids
        return ids

    def _timestamp(self, at_s: float) -> int:
        step = round(at_s / TIMESTAMP_STEP_S)
        return self._first_timestamp + min(max(step, 0), NUM_TIMESTAMPS - 1)
