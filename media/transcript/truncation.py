"""Whether a model stopped before everything was said, and what it says when it goes on. Pure.

Behind a sentence that ends well Whisper sometimes stops though somebody says another one: of windows of two
to eight people's prompts one or two in a hundred. It is in two minds then, and where all was said it is not:
there no word is likely instead of the end, whatever silence, noise or music follows. Where it is sure of an
end that is too early, `coverage_checks.py` sees it by how little was said. Figures are in
docs/performance/speech.md, by `examples/benchmarks/early_ends.py`; `actors/speech/families/whisper.py` asks.
"""

from __future__ import annotations

import math
import unicodedata
from typing import Final

import msgspec

from ...protocols.engine.messages import TextGenerated
from .plausibility import MIN_LOGPROB

SURE_END: Final = math.log(0.6)
"""A stop that is likelier is one. Of two ends that were too early one had 0.41, the other 0.37."""
LEAST_WORD: Final = 0.1
"""How likely what is said instead must be."""
MOST_RESTS: Final = 3
"""Times that an answer is asked about."""


def may_end_early(answer: TextGenerated) -> bool:
    """Whether the model was so unsure of the answer's end that it is worth asking what else there is.

    Not where a full stop is missing, for that might have come instead: behind short turns it often might.
    """
    if answer.finish_reason != "stop":
        return False
    if (answer.stop_logprob or 0.0) >= SURE_END:
        return False
    last = answer.text.rstrip()[-1:]
    return bool(last) and unicodedata.category(last).startswith("P")


def goes_on(answer: TextGenerated, rest: TextGenerated) -> bool:
    """Whether `rest`, asked for behind `answer` with stopping forbidden at first, was said, too."""
    if rest.finish_reason != "stop" or not any(map(str.isalnum, rest.text)) or not rest.logprobs:
        return False
    is_likely = sum(rest.logprobs) >= MIN_LOGPROB * len(rest.logprobs)
    share = 1.0 - math.exp(answer.stop_logprob or 0.0)
    return is_likely and share * math.exp(rest.logprobs[0]) >= LEAST_WORD


def joined(answer: TextGenerated, rest: TextGenerated) -> TextGenerated:
    """Both as one answer."""
    return msgspec.structs.replace(
        rest,
        text=answer.text + rest.text,
        token_ids=answer.token_ids + rest.token_ids,
        logprobs=answer.logprobs + rest.logprobs,
        top_logprobs=answer.top_logprobs + rest.top_logprobs,
        probe_probability=answer.probe_probability,
    )
