"""A transcript's facts in OpenAI's shapes, the same for files and for live sessions.

Used by `protocols/transcription/rest.py` and `protocols/realtime/events.py`, which are the bodies around
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, Struct, UnsetType

from .transcript import TokenLogProb, Transcript


class InputTokenDetails(Struct, frozen=True):
    """Tokens of the input, by what they stand for."""

    audio_tokens: int
    text_tokens: int


class TokenUsage(Struct, frozen=True, tag_field="type", tag="tokens"):
    """Tokens of one transcription: encoder positions that held audio plus prompt, and generated text."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_token_details: InputTokenDetails | UnsetType = UNSET
    """Ours are told always: clients are written for OpenAI's, which are (LiteLLM's fails without them)."""


class DurationUsage(Struct, frozen=True, tag_field="type", tag="duration"):
    """What other servers report instead."""

    seconds: float


class DetectedLanguage(Struct, frozen=True):
    """A language by its ISO-639-1 code."""

    code: str


class LogProb(Struct, frozen=True):
    """One generated token and the natural logarithm of its probability."""

    token: str
    bytes: list[int]
    logprob: float


def token_usage(transcript: Transcript) -> TokenUsage:
    """Tokens read and written for a transcript."""
    read, written = transcript.num_input_tokens, transcript.num_output_tokens
    num_audio = transcript.num_audio_tokens
    return TokenUsage(read, written, read + written, InputTokenDetails(num_audio, read - num_audio))


def detected_languages(transcript: Transcript) -> list[DetectedLanguage]:
    """The transcript's languages as OpenAI's list, the main one first; empty if none was detected."""
    main = (transcript.language,) if transcript.language else ()
    return [DetectedLanguage(code) for code in transcript.languages or main]


def log_probs(tokens: Iterable[TokenLogProb]) -> list[LogProb]:
    """Per-token log-probabilities in OpenAI's shape."""
    return [LogProb(token.text, list(token.data), token.logprob) for token in tokens]
