"""Which commits of a client are refused, whatever finds its turns."""

from __future__ import annotations

from typing import Final

from ...protocols.errors import BadRequestError
from ...protocols.shared.audio_format import ms_to_samples, samples_to_ms
from ..config import MIN_COMMIT_MS
from ..conversation import MAX_PENDING, Conversation

MIN_COMMIT: Final = ms_to_samples(MIN_COMMIT_MS)


def check_pending(conversation: Conversation) -> None:
    """Raise BadRequestError if too many commits wait for their answer."""
    if len(conversation.pending) >= MAX_PENDING:
        raise BadRequestError(
            f"{MAX_PENDING} committed items are waiting for their transcripts", code="too_many_commits"
        )


def too_short(num_samples: int) -> BadRequestError:
    """The refusal of a commit of so little audio."""
    return BadRequestError(
        f"the input audio buffer holds {samples_to_ms(num_samples)} ms of audio; "
        f"a commit needs at least {MIN_COMMIT_MS} ms",
        code="input_audio_buffer_commit_empty",
    )
