"""The text side of a Whisper checkpoint: prompts, rules of sampling, and tokens back into text and times.

Torch-free: sessions and REST use it on the trio side while tensors stay with `engine/execution/runner.py`.
`WhisperText` is built once per model from the checkpoint's folder; its methods are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Final

import msgspec

from ....protocols.engine.messages import Phrases, ProbabilityProbe, SamplingParams
from ....protocols.errors import BadRequestError
from ....protocols.shared.languages import check_language
from ....protocols.transcription.transcript import Task, Word
from ...text.keyword_boosting import phrases_of
from ...text.token_bytes import make_table
from ...text.tokenizer import TextTokenizer
from ..info import generation_config, misfit, token_ids
from .info import WhisperInfo, read_info
from .tokenizer import read_tokenizer
from .words import split_words

_READ_WITH_NUMBERS: Final = "%$£€"
"""Signs that stand for words only beside digits; whisperX counts most of them as numerals, too."""
_KEPT_PROMPTS: Final = 64
"""A live turn asks with the same prompt again and again; a long one takes milliseconds to encode."""
_KEPT_PHRASES: Final = 128
_KINDS: Final = {
    "alignment_heads": list,
    "lang_to_id": dict,
    "max_length": int,
    "no_timestamps_token_id": int,
    "task_to_id": dict,
}
"""What fields of the generation config must be, where they are there."""


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """The pieces of a request that samples that the text side decides."""

    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    probe: ProbabilityProbe | None = None


@dataclass(frozen=True, slots=True)
class AlignmentRequest:
    """The pieces of an `Align` that the text side decides; `text_token_ids` is what gets times."""

    token_ids: tuple[int, ...]
    text_start: int
    text_end: int

    @property
    def text_token_ids(self) -> tuple[int, ...]:
        """The tokens that get times, in order."""
        return self.token_ids[self.text_start : self.text_end]


class WhisperText:
    """Prompts, sampling rules and text of one checkpoint."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        info: WhisperInfo,
        generation: dict[str, Any],
    ) -> None:
        self.tokenizer = tokenizer
        self.info = info
        vocabulary = tokenizer.backend.get_vocab(with_added_tokens=True)
        self.byte_table = make_table(vocabulary, tokenizer.is_control)
        """See `ModelText`."""
        token = partial(tokenizer.required_id, folder=info.folder)
        self.start_id = token("<|startoftranscript|>")
        self.end_id = token("<|endoftext|>")
        self.previous_id = token("<|startofprev|>")
        self.no_timestamps_id = int(generation.get("no_timestamps_token_id") or token("<|notimestamps|>"))
        # The name of this token differs between releases ("nospeech", "nocaptions"), its place does not.
        self.no_speech_id = self.no_timestamps_id - 1
        self.language_ids = {code: token(f"<|{code}|>") for code in info.languages}
        self.task_ids = {task: token(f"<|{task}|>") for task in info.tasks if info.languages}
        self._encoded = lru_cache(_KEPT_PROMPTS)(self._spoken)
        self.phrases = lru_cache(_KEPT_PHRASES)(self._phrases)
        """Those of keywords, made likelier by so much."""
        folder = info.folder
        self._stop = token_ids(generation, "eos_token_id", folder) or (self.end_id,)
        self._suppress = token_ids(generation, "suppress_tokens", folder)
        self._begin_suppress = token_ids(generation, "begin_suppress_tokens", folder)
        self._max_length: int | None = generation.get("max_length")

    @classmethod
    def from_folder(cls, folder: Path, *, name: str | None = None) -> WhisperText:
        """Read tokenizer and configs. Raises ModelLoadError naming the file or token at fault."""
        folder = Path(folder)
        generation = generation_config(folder)
        for field, kind in _KINDS.items():
            if type(generation.get(field)) not in (kind, type(None)):
                raise misfit(folder, field, generation[field], f"of type {kind.__name__}")
        tokenizer = read_tokenizer(folder)
        info = read_info(folder, name or folder.name, generation, tokenizer.backend.get_vocab())
        return cls(tokenizer, info, generation)

    grammar_json = None
    """Transcripts follow no grammar."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of `text`, whatever it contains: never a control token or a timestamp."""
        return self.tokenizer.encode(text, allow_special=False)

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes (perhaps a part of a character) of a token; empty for control tokens."""
        return self.byte_table[token_id] if token_id < len(self.byte_table) else b""

    @property
    def is_multilingual(self) -> bool:
        """Whether prompts name a language and a task."""
        return bool(self.language_ids)

    def previous(self, text: str, before: str = "") -> tuple[int, ...]:
        """`<|startofprev|>`, the last tokens of `text`, then those of `before`; () where both are blank.

        At most `max_target_positions // 2 - 1` tokens are kept, as openai/whisper does: of `text` the most
        recent ones, of `before` (what was said in front of the window) those that still have room. Names of
        control tokens inside are ordinary characters.
        """
        limit = self.info.max_context // 2 - 1
        prompt = self._encoded(text.strip())[-limit:]
        room = limit - len(prompt)
        spoken = self.encode(" " + before.strip())[-room:] if room and before.strip() else ()
        return (self.previous_id, *prompt, *spoken) if prompt or spoken else ()

    def _phrases(self, keywords: tuple[str, ...], boost: float) -> Phrases | None:
        return phrases_of(keywords, boost, self.encode, start_token=self.no_timestamps_id)

    def _spoken(self, text: str) -> tuple[int, ...]:
        return self.encode(" " + text) if text else ()

    def prompt(
        self,
        *,
        language: str | None,
        task: Task = "transcribe",
        previous_text: str = "",
        before: str = "",
    ) -> tuple[int, ...]:
        """Decoder prompt for one window. A multilingual model needs `language` (see `detection`)."""
        ids = [*self.previous(previous_text, before), self.start_id]
        if language is not None:
            language = check_language(language, self.info.languages or ("en",))
        if task not in (self.task_ids if self.is_multilingual else ("transcribe",)):
            raise BadRequestError(f"this model cannot {task}", param="task", code="unsupported_task")
        if self.is_multilingual:
            if language is None:
                raise ValueError("a multilingual prompt needs a language; run `detection` first")
            ids += [self.language_ids[language], self.task_ids[task]]
        return (*ids, self.no_timestamps_id)

    def sampling(
        self,
        *,
        num_prompt: int,
        temperature: float = 0.0,
        seed: int | None = None,
        spells_numbers: bool = False,
        phrases: Phrases | None = None,
    ) -> SamplingParams:
        """Sampling rules of the checkpoint's generation config for a prompt of `num_prompt` tokens, with the
        log-probability of what is said.

        With `spells_numbers` no digit and no sign that is read with one may be said, so that words are.
        """
        return SamplingParams(
            max_tokens=self.max_tokens(num_prompt),
            temperature=temperature,
            seed=seed,
            stop_token_ids=self._stop,
            suppress_token_ids=self._without_numerals if spells_numbers else self._suppress,
            begin_suppress_token_ids=self._begin_suppress,
            phrases=phrases,
            logprobs=0,
        )

    @cached_property
    def _without_numerals(self) -> tuple[int, ...]:
        """What may never be said, and tokens with a numeral."""
        numerals = (
            token_id
            for token_id in range(self.end_id)
            if any(map(_is_numeral, self.token_bytes(token_id).decode(errors="ignore")))
        )
        return tuple(dict.fromkeys((*self._suppress, *numerals)))

    def max_tokens(self, num_prompt: int) -> int:
        """How many tokens may follow a prompt: the decoder's positions, and `max_length` if configured."""
        positions = self.info.max_context
        if self._max_length is not None:
            # transformers: max_length does not count the prompt, up to half of the positions.
            positions = min(positions, self._max_length + min(positions // 2 - 1, num_prompt))
        return max(positions - num_prompt, 0)

    def request(
        self,
        *,
        language: str | None,
        task: Task = "transcribe",
        previous_text: str = "",
        before: str = "",
        temperature: float = 0.0,
        seed: int | None = None,
        spells_numbers: bool = False,
        likelier: tuple[tuple[str, ...], float] = ((), 0.0),
    ) -> DecodeRequest:
        """Prompt, sampling rules and the no-speech probe for one window."""
        prompt = self.prompt(language=language, task=task, previous_text=previous_text, before=before)
        sampling = self.sampling(
            num_prompt=len(prompt),
            temperature=temperature,
            seed=seed,
            spells_numbers=spells_numbers,
            phrases=self.phrases(*likelier),
        )
        return DecodeRequest(prompt, sampling, self.no_speech_probe(prompt))

    def continued(self, request: DecodeRequest, spoken: tuple[int, ...]) -> DecodeRequest | None:
        """The question what comes behind `spoken`, its answer to `request`, if it may not stop there; None if
        there is no room for more."""
        prompt = request.prompt_token_ids + spoken
        if (room := request.sampling.max_tokens - len(spoken)) < 1:
            return None
        first = tuple(dict.fromkeys((*request.sampling.begin_suppress_token_ids, *self._stop)))
        sampling = msgspec.structs.replace(request.sampling, max_tokens=room, begin_suppress_token_ids=first)
        return DecodeRequest(prompt, sampling)

    def no_speech_probe(self, prompt_token_ids: Sequence[int]) -> ProbabilityProbe:
        """Whisper's no-speech probability: behind `<|startoftranscript|>`."""
        return ProbabilityProbe(list(prompt_token_ids).index(self.start_id), self.no_speech_id)

    def detection(self, languages: Sequence[str] = ()) -> DecodeRequest:
        """One constrained step whose token is the language (see `language_of`), and the no-speech probe.

        It is one of `languages`, if any are given. Raises BadRequestError (param `languages`).
        """
        if not self.is_multilingual:
            raise ValueError("an English-only model has no languages to detect")
        known = self.info.languages
        codes = [check_language(each, known, param="languages") for each in languages] or known
        allowed = tuple(self.language_ids[code] for code in codes)
        sampling = SamplingParams(max_tokens=1, allowed_token_ids=allowed, logprobs=0)
        return DecodeRequest((self.start_id,), sampling, ProbabilityProbe(0, self.no_speech_id))

    def language_of(self, token_id: int) -> str:
        """The code of a language token."""
        for code, language_id in self.language_ids.items():
            if language_id == token_id:
                return code
        raise ValueError(f"token {token_id} is not a language token")

    def is_text(self, token_id: int) -> bool:
        """Whether a token is text: neither control token nor timestamp."""
        return token_id < self.end_id

    def text_token_ids(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """The text tokens of an answer."""
        return tuple(token_id for token_id in token_ids if self.is_text(token_id))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of an answer without control tokens and timestamps; spaces are kept as they are."""
        return b"".join(map(self.token_bytes, self.text_token_ids(token_ids))).decode(errors="replace")

    def alignment(
        self, token_ids: Sequence[int], *, language: str | None, task: Task = "transcribe"
    ) -> AlignmentRequest:
        """What to feed to find when each text token of an answer was spoken."""
        prompt = self.prompt(language=language, task=task)
        text = self.text_token_ids(token_ids)
        # The decoder has no more positions than these.
        text = text[: self.info.max_context - len(prompt) - 1]
        return AlignmentRequest((*prompt, *text, self.end_id), len(prompt), len(prompt) + len(text))

    def words(self, text_token_ids: Sequence[int], boundaries: Sequence[int]) -> tuple[Word, ...]:
        """Words of aligned text tokens. `boundaries` as in `TokensAligned`, one more than tokens."""
        if len(boundaries) != len(text_token_ids) + 1:
            raise ValueError(f"{len(text_token_ids)} tokens need {len(text_token_ids) + 1} boundaries")
        pieces = [self.token_bytes(token_id) for token_id in text_token_ids]
        return tuple(
            Word(
                word=group.text.strip(),
                start=round(boundaries[group.start] * self.info.position_s, 3),
                end=round(boundaries[group.end] * self.info.position_s, 3),
            )
            for group in split_words(pieces)
            if group.text.strip()
        )


def _is_numeral(character: str) -> bool:
    return character.isdigit() or character in _READ_WITH_NUMBERS
