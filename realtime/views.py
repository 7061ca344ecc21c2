"""A session of either kind as its client sees it in `session.created` and `session.updated`."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from ..protocols.realtime.conversation_session import DialogueLimitsView, DialogueView
from ..protocols.realtime.session import LimitsView, SessionView
from .config import SessionConfig
from .dialogue.settings import DialogueSettings
from .settings import SessionSettings

CAPABILITIES: Final = (
    "audio_containers",
    "binary_audio",
    "captions",
    "input_audio_buffer.backpressure",
    "input_audio_buffer.flush",
    "left_context_ms",
    "multichannel",
    "pcm_rates",
    "pre_commit_deltas",
    "server_event_seq",
    "session.expiring",
    "timestamp_granularities",
    "utterance_end_ms",
)
"""Extensions of OpenAI's dialect, as `session.capabilities` lists them; `session.resume` joins them where
the session waits for a client whose socket was lost."""
_OF_ANSWERS: Final = ("conversation.truncated", "sampling", "truncate_text")
_OF_VIDEO: Final = ("input_image_buffer",)
"""More of them, in sessions that answer."""


def session_view(
    session_id: str,
    config: SessionConfig,
    settings: SessionSettings,
    dialogue: DialogueSettings | None,
    *,
    expires_at: int,
    may_resume: bool,
) -> SessionView | DialogueView:
    """The whole session; `dialogue` are the settings of one that answers."""
    limits = LimitsView(
        max_append_bytes=config.max_append_bytes,
        max_backlog_ms=config.max_backlog_ms,
        max_turn_s=config.max_turn_s,
        force_turn_s=min(config.force_turn_s, config.max_turn_s),
        max_session_s=config.max_session_s,
        idle_s=config.idle_s,
        resume_grace_s=config.resume_grace_s if may_resume else 0.0,
    )
    capabilities = {*CAPABILITIES, *(("session.resume",) if may_resume else ())}
    if dialogue is None or config.dialogue is None:
        return SessionView(
            id=session_id,
            expires_at=expires_at,
            audio=settings.audio_view(config.delay),
            include=settings.include_view(),
            limits=limits,
            capabilities=sorted(capabilities),
        )
    answers, takes_video = dialogue.answers, bool(config.dialogue.video.max_fps)
    return DialogueView(
        id=session_id,
        expires_at=expires_at,
        model=config.dialogue.model,
        instructions=answers.instructions,
        tools=list(answers.tools.tools),
        tool_choice=answers.tools.choice,
        max_output_tokens=answers.max_output_tokens,
        # OpenAI's sessions have no "none".
        reasoning=UNSET if answers.reasoning.effort in (None, "none") else answers.reasoning,
        truncation=dialogue.truncation,
        temperature=UNSET if answers.temperature is None else answers.temperature,
        top_p=UNSET if answers.top_p is None else answers.top_p,
        seed=UNSET if answers.seed is None else answers.seed,
        audio=settings.audio_view(),  # Pipecat's sessions that answer know no `delay`, and read none with it
        video=dialogue.video if takes_video else UNSET,
        include=settings.include_view(),
        limits=DialogueLimitsView(
            **msgspec.structs.asdict(limits),
            max_context=config.dialogue.max_context,
            max_items=config.dialogue.max_items,
            max_media_bytes=config.dialogue.max_media_bytes,
            max_item_chars=config.dialogue.max_item_chars,
            max_fps=config.dialogue.video.max_fps,
            max_frame_bytes=config.dialogue.video.max_frame_bytes if takes_video else 0,
        ),
        capabilities=sorted({*capabilities, *_OF_ANSWERS, *(_OF_VIDEO if takes_video else ())}),
    )
