"""Which class of service a request belongs to; live is none of them, however a client asks.

Speech that is being spoken gets its class where it is transcribed (`actors/speech/model.py`). What classes
mean is in `engine/planning/policies/service_classes.py`.
"""

from __future__ import annotations

from typing import Final

from ..protocols.engine.messages import Lane

MAX_INTERACTIVE_ANSWERS: Final = 8
"""Answers that one request asks for, prompts times `n`: nobody reads more while they are written."""
MAX_INTERACTIVE_OPEN: Final = 16
"""Requests that one caller has open: more are a program's, not a person's."""
MAX_INTERACTIVE_AUDIO_S: Final = 600.0
"""Length of a file whose transcript somebody waits for."""
_CLIP_S: Final = 30.0
"""What a clip of it counts as at least: Whisper hears a window for each, however short it is."""


def lane_of(
    *, priority: int = 0, num_answers: int = 1, num_open: int = 1, audio_s: float = 0.0, caller: str = ""
) -> Lane:
    """Interactive, or batch for much work or a low priority (above 0); the priority orders within it."""
    is_batch = (
        priority > 0
        or num_answers > MAX_INTERACTIVE_ANSWERS
        or num_open > MAX_INTERACTIVE_OPEN
        or audio_s > MAX_INTERACTIVE_AUDIO_S
    )
    return Lane("batch" if is_batch else "interactive", priority, caller)


def work_s(audio_s: float, num_clips: int) -> float:
    """What a file counts as, of which so many clips are asked for (0: all of it)."""
    return max(audio_s, num_clips * _CLIP_S)
