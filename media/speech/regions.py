"""Where somebody speaks in a recording: stretches of speech, parted by pauses.

The rules are those of Silero's own `get_speech_timestamps` (github.com/snakers4/silero-vad): a frame at the
threshold begins speech, one below the threshold - 0.15 may end it. Scores come from
`media/speech/voice_activity.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from .voice_activity import FRAME_SAMPLES, FloatArray, VoiceActivityModel, VoiceActivityStream

LIKELY_SPEECH: Final = 0.5
RELEASE_MARGIN: Final = 0.15
"""Speech goes on down to the threshold less this."""
_PIECE: Final = 10 * 16_000
"""Samples that are scored at a time, in some 30 ms: what that holds does not grow with the recording."""
Region = tuple[int, int]
"""First sample and the one behind the last."""
Score = tuple[int, float]
"""End of a frame in samples, and the probability of speech in it."""


def speech_regions(
    model: VoiceActivityModel,
    samples: FloatArray,
    *,
    threshold: float = LIKELY_SPEECH,
    min_speech: int = 0,
    min_silence: int = 0,
    padding: int = 0,
    check: Callable[[], object] = lambda: None,
) -> list[Region]:
    """Where somebody speaks in `samples` [n], in order; regions do not overlap. Lengths are in samples.

    Pauses shorter than `min_silence` are part of a region, regions shorter than `min_speech` are left out.
    The others grow by `padding` at both ends, or meet in the middle. Costs 3 ms a second: for a thread, which
    is left by what `check` raises, called every 10 s of sound.
    """
    return scored_regions(
        speech_scores(model, samples, check=check),
        len(samples),
        threshold=threshold,
        min_speech=min_speech,
        min_silence=min_silence,
        padding=padding,
    )


def speech_scores(
    model: VoiceActivityModel, samples: FloatArray, *, check: Callable[[], object] = lambda: None
) -> list[Score]:
    """The score of each frame of `samples` [n]: what takes the time in `speech_regions`."""
    stream, scores = VoiceActivityStream(model), list[Score]()
    for start in range(0, len(samples), _PIECE):
        check()
        scores += stream.push(samples[start : start + _PIECE])
    return scores


def scored_regions(
    scores: Iterable[Score],
    num_samples: int,
    *,
    threshold: float = LIKELY_SPEECH,
    min_speech: int = 0,
    min_silence: int = 0,
    padding: int = 0,
) -> list[Region]:
    """`speech_regions` of `num_samples` whose scores are known."""
    regions = [
        (start, end)
        for start, end in _joined(_spoken(scores, threshold), min_silence)
        if end - start >= min_speech
    ]
    return _padded(regions, padding, num_samples)


def _spoken(scores: Iterable[Score], threshold: float) -> Iterable[Region]:
    """The frames of speech."""
    is_speech = False
    for end, probability in scores:
        is_speech = probability >= threshold - (RELEASE_MARGIN if is_speech else 0.0)
        if is_speech:
            yield end - FRAME_SAMPLES, end


def _joined(regions: Iterable[Region], min_silence: int) -> list[Region]:
    joined: list[Region] = []
    for start, end in regions:
        if joined and start - joined[-1][1] < max(1, min_silence):
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined


def _padded(regions: list[Region], padding: int, num_samples: int) -> list[Region]:
    padded = []
    for index, (start, end) in enumerate(regions):
        before = regions[index - 1][1] if index else -start
        after = regions[index + 1][0] if index + 1 < len(regions) else 2 * num_samples - end
        padded.append((max(start - padding, (before + start) // 2), min(end + padding, (end + after) // 2)))
    return padded
