"""The settings of a session that answers: merging a client's patch, and showing the result. All or nothing.

How audio comes in is settled in `realtime/settings.py`, for every kind of session. Refusals raise
`BadRequestError` with the dotted field.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from ...protocols.errors import BadRequestError
from ...protocols.realtime_dialogue_session import (
    AnswerPatch,
    DialoguePatch,
    ReasoningPatch,
    Truncation,
    VideoPatch,
    VideoView,
)
from ...protocols.realtime_responses import ResponseWish
from ...protocols.realtime_session import SessionPatch
from ..wishes import either, merged
from .config import DialogueConfig
from .tool_settings import ToolSettings, merge_tools


class AnswerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one response is made; None is what the model's checkpoint says."""

    instructions: str = ""
    max_output_tokens: int | Literal["inf"] = "inf"
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    tools: ToolSettings = ToolSettings()
    reasoning: ReasoningPatch = ReasoningPatch()


class DialogueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a client can change beside how audio comes in, in force."""

    answers: AnswerSettings = AnswerSettings()
    truncation: Truncation = "auto"
    video: VideoView


def audio_patch(patch: DialoguePatch) -> SessionPatch:
    """The part of a patch that is about audio coming in, as every kind of session has it."""
    return SessionPatch(audio=patch.audio, include=patch.include)


def merge(current: DialogueSettings, patch: DialoguePatch, config: DialogueConfig) -> DialogueSettings:
    """The settings after `patch`. Raises `BadRequestError` and changes nothing if any part is refused."""
    if patch.model and patch.model not in (config.model, *config.aliases):
        raise BadRequestError(
            f"`session.model` is {config.model!r} as long as the session lasts",
            code="model_fixed",
            param="session.model",
        )
    return DialogueSettings(
        answers=_answers(current.answers, patch, AnswerSettings(), config, "session"),
        truncation=either(patch.truncation, current.truncation, "auto"),
        video=_video(current.video, patch.video, config),
    )


def initial_video(config: DialogueConfig) -> VideoView:
    """How long frames are remembered, and which are worth it, as the operator has it."""
    return VideoView(
        retention_s=config.video.retention_s,
        retention_tokens=min(config.video.retention_tokens, config.max_retention_tokens),
        min_change=config.video.min_change,
    )


def initial_settings(config: DialogueConfig) -> DialogueSettings:
    """A session before any update of its client."""
    return merge(DialogueSettings(video=initial_video(config)), config.initial, config)


def of_response(current: DialogueSettings, wish: ResponseWish, config: DialogueConfig) -> AnswerSettings:
    """How a response is made that asks for `wish`; null stands for the session's value."""
    if wish.conversation not in (UNSET, None, "auto", "none"):
        raise BadRequestError(
            "`response.conversation`: a session has one conversation; allowed: auto, none",
            param="response.conversation",
        )
    return _answers(current.answers, wish, current.answers, config, "response")


def _answers(
    current: AnswerSettings,
    patch: AnswerPatch,
    default: AnswerSettings,
    config: DialogueConfig,
    param: str,
) -> AnswerSettings:
    tools = merge_tools(
        current.tools,
        default.tools,
        patch.tools,
        patch.tool_choice,
        patch.parallel_tool_calls,
        param=param,
        calls_tools=config.calls_tools,
    )
    return msgspec.structs.replace(merged(current, patch, default), tools=tools)


def _video(current: VideoView, patch: VideoPatch | UnsetType | None, config: DialogueConfig) -> VideoView:
    default = initial_video(config)
    if patch is UNSET:
        return current
    if patch is None:
        return default
    video = merged(current, patch, default)
    most = min(video.retention_tokens, config.max_retention_tokens)
    return msgspec.structs.replace(video, retention_tokens=most)
