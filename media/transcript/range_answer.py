"""What a speech model answered for one range of a recording: text, tokens and confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.transcription.transcript import TokenLogProb

Samples = npt.NDArray[np.float32]
"""Mono at 16 kHz, shape [n]."""

Range = tuple[int, int]
"""Start and end in samples of what is answered at once."""


def clip_ranges(num_samples: int, clips: Sequence[float]) -> list[Range]:
    """A recording's clips, whose starts and ends `clips` names in seconds; all of it if there are none, and
    up to its end where the last end is missing."""
    places = [min(round(second * INTERNAL_RATE), num_samples) for second in clips or (0.0,)]
    ends = [*places, num_samples]
    return list(zip(ends[::2], ends[1::2], strict=False))


@dataclass(frozen=True, slots=True)
class DetectedLanguage:
    """The language of a range, as code, and how sure the model was."""

    code: str
    probability: float
    is_speech: bool = True
    """Else nobody seems to speak, and what is detected in a later range counts for more."""
    in_halves: float = 1.0
    """How sure the model was of it in that half of the range in which it was less sure; 0: it found another
    there. 1 where it was not asked."""
    is_provisional: bool = False
    """See `RangeAnswer`."""


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    """What the model said about one range. Silence has no text."""

    text: str = ""
    """Without loops, header, control tokens and white space around it."""
    language: DetectedLanguage | None = None
    """The language that the answer names, unless that was asked for."""
    token_ids: tuple[int, ...] = ()
    """Everything that was said."""
    num_header: int = 0
    """How many of the tokens stand before the text."""
    logprobs: tuple[float, ...] = ()
    """Of the tokens behind the header."""
    tokens: tuple[TokenLogProb, ...] = ()
    """Of the text, if the options need them."""
    temperature: float = 0.0
    """At which it was drawn."""
    no_speech_prob: float = 1.0
    num_input_tokens: int = 0
    num_audio_tokens: int = 0
    """Of the input."""
    num_output_tokens: int = 0
    is_cut: bool = False
    """The model went on in a loop, or said more than anyone can say in the time: the text ends where that
    began, and may lack what was said."""
    is_provisional: bool = False
    """The question was one that may grow, and the same range would be answered otherwise when it does not."""
    effort: int = 0
    """What a question that may grow took, for the next one to begin with; the family's own measure."""
