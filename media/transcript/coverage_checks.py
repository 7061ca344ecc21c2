"""Whether an answer accounts for the speech it is about, and whether others account for it better. Pure.

Models fail in silence: they say once what was said twice, leave out a sentence, or go on without end. An
answer takes about as long to say as somebody speaks: of 24 ranges of people's prompts, up to half a minute
each, the expected length of the text (`media/speech/coverage.py`) was 0.99 to 1.28 of the speech; where a
model had left out four prompts of 16 s, 0.78. Used by `actors/speech/retries/retranscription.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Final

from ...protocols.transcription.transcript import Doubt
from ..speech.coverage import expected_s
from ..speech.spoken_length import phrase_end
from .language_detection import CLEAR
from .plausibility import MIN_LOGPROB, SPOKEN, mean_logprob
from .range_answer import DetectedLanguage, RangeAnswer

LEAST_SPEECH_S: Final = 0.5
"""Of less speech nothing is missed."""
ENOUGH: Final = 0.85
"""Of the speech, what an answer takes to say: less is doubtful."""
ENOUGH_REPEATED: Final = 1.15
"""The same where the answer has a sentence twice in a row: it may have been said once more."""
LEAST_UNSAID_S: Final = 1.0
"""Speech without words that is worth another question."""
LEAST_GAIN: Final = 0.15
"""Of the speech, how much more must be said to count as better."""
LEAST_SHARE: Final = 0.4
"""Of the speech, what must be said in place of an answer that was cut."""
MOST_SHARE: Final = 1.8
"""Of the speech: what takes longer to say is babble."""
VERY_LITTLE: Final = 0.6
"""Of the speech: halves of a range with so few words are halved again even if they have no more."""
MEASURED_INLINE: Final = 400
"""Characters whose length in seconds is found in 2 ms."""
UNSURE: Final = -0.5
"""Mean log-probability below which a detected language may be wrong."""
TORN: Final = 0.5
"""How sure a model is of its language in both halves of a range, at least, where people speak one. Of 25
crowds played backwards whisper-base was less sure in one half, and of 22 than `CLEAR` in the whole."""
FEW_WORDS: Final = 2
SAME_WORDS: Final = 0.5
"""Of the different words of an answer, what its halves have too, where somebody said them."""
SURER: Final = 0.15
"""So much more of it makes another language better."""


def doubt_of(
    answer: RangeAnswer, speech_s: float, *, is_language_found: bool, is_translated: bool = False
) -> Doubt | None:
    """What speaks against an answer about so much speech, whose language the model found by itself or was
    given; None: nothing. No text is for others to judge. A translation may be much shorter."""
    if not answer.text or speech_s < LEAST_SPEECH_S:
        return None
    if answer.is_cut:
        return "cut"
    if is_translated:
        return None
    expected = expected_s(answer.text)
    if expected < ENOUGH * speech_s and speech_s - expected >= LEAST_UNSAID_S:
        return "unsaid"
    if expected < ENOUGH_REPEATED * speech_s and _repeats_itself(answer.text):
        return "unsaid"
    return "language" if is_language_found and mean_logprob(answer) < UNSURE else None


def may_gain_by_cuts(doubt: Doubt, answer: RangeAnswer, speech_s: float) -> bool:
    """Whether quarters may be better where halves are not."""
    return doubt == "cut" or (doubt == "unsaid" and expected_s(answer.text) < VERY_LITTLE * speech_s)


def may_be_babble(doubt: Doubt, answer: RangeAnswer, found: DetectedLanguage) -> bool:
    """Whether a doubtful answer is one that models give where voices say nothing in any language."""
    if found.in_halves >= TORN or found.probability >= CLEAR:
        return False
    if mean_logprob(answer) < MIN_LOGPROB:
        return True
    return doubt != "language" and answer.no_speech_prob >= SPOKEN


def is_other_text(answer: RangeAnswer, halves: Sequence[RangeAnswer]) -> bool:
    """Whether halves of a range have few of its words, and of each other's: what is said again and again is
    in both, even where the whole of it is misheard.

    One or two different words tell nothing: "1, 1, 1" may be "One, one" in a half.
    """
    words, again = _words(answer), [words for half in halves if (words := _words(half))]
    if len(words) <= FEW_WORDS or not again:
        return len(words) > FEW_WORDS
    pairs = itertools.pairwise((words, *again, words))
    return all(len(one & other) < SAME_WORDS * min(len(one), len(other)) for one, other in pairs)


def is_next_to_nothing(doubt: Doubt, answer: RangeAnswer, speech_s: float) -> bool:
    """Whether an answer has few words for the speech, and unlikely ones: "Thank you for watching." """
    is_little = doubt == "unsaid" and expected_s(answer.text) < VERY_LITTLE * speech_s
    return is_little and mean_logprob(answer) < MIN_LOGPROB


def is_better(
    doubt: Doubt,
    answer: RangeAnswer,
    others: Sequence[RangeAnswer],
    speech_s: float,
    *,
    is_other: bool = False,
) -> bool:
    """Whether `others`, in turn, are to be believed rather than the doubtful `answer`.

    `is_other`: one of them is in another language.
    """
    spoken = [other for other in others if other.text and not other.is_cut]
    is_any_cut = doubt != "cut" and any(other.is_cut for other in others)
    if not spoken or is_any_cut or _mean_logprob(spoken) < MIN_LOGPROB:
        return False
    share = sum(expected_s(other.text) for other in spoken) / speech_s
    if share > MOST_SHARE:
        return False
    if doubt == "cut":
        return share >= LEAST_SHARE
    before = expected_s(answer.text) / speech_s
    if doubt == "unsaid":
        return share >= before + LEAST_GAIN
    has_all = share >= min(before, 1.0) - LEAST_GAIN
    return has_all and is_other and _mean_logprob(spoken) >= mean_logprob(answer) + SURER


def _words(answer: RangeAnswer) -> set[str]:
    return set(re.findall(r"\w+", answer.text.casefold()))


def _repeats_itself(text: str) -> bool:
    """Whether a sentence of several words stands twice in a row."""
    sentences, words = [list[str]()], text.casefold().split()
    for word in words:
        sentences[-1].append(word)
        if phrase_end(word) == ".":
            sentences.append([])
    return any(one == other and len(one) > 2 for one, other in itertools.pairwise(sentences))


def _mean_logprob(answers: Sequence[RangeAnswer]) -> float:
    logprobs = [logprob for answer in answers for logprob in answer.logprobs]
    return sum(logprobs) / len(logprobs) if logprobs else 0.0
