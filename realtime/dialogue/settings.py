"""The settings of a session that answers: merging a client's patch, and showing the result. All or nothing.

How audio comes in is settled in `realtime/settings.py`, for every kind of session; tools are checked as
`/v1/responses` checks them (`protocols/chat/tools.py`). Refusals raise `BadRequestError` with the dotted
field.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...protocols.chat.tools import NO_TOOLS, ToolUse, read_tool_use
from ...protocols.errors import BadRequestError, wrong
from ...protocols.realtime.conversation_session import (
    AnswerPatch,
    DialoguePatch,
    ReasoningPatch,
    Truncation,
    VideoPatch,
    VideoView,
)
from ...protocols.realtime.responses import ResponseOptions
from ...protocols.realtime.session import SessionPatch
from ..transcription_options import either, merged
from .config import DialogueConfig

MAX_TOOL_BYTES: Final = 256 * 1024
"""Of the tools of a session together, as they came."""
_MAX_CHOICE_BYTES: Final = 1024


class ToolSettings(msgspec.Struct, frozen=True):
    """What may be called, as the client said it, and what that means."""

    tools: tuple[dict[str, Any], ...] = ()
    choice: str | dict[str, Any] = "auto"
    is_parallel: bool = True
    use: ToolUse = NO_TOOLS


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
        raise wrong("session.model", f"is {config.model!r} as long as the session lasts", code="model_fixed")
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


def of_response(
    current: DialogueSettings, options: ResponseOptions, config: DialogueConfig
) -> AnswerSettings:
    """How a response is made that asks for `options`; null stands for the session's value."""
    if options.conversation not in (UNSET, None, "auto", "none"):
        raise BadRequestError(
            "`response.conversation`: a session has one conversation; allowed: auto, none",
            param="response.conversation",
        )
    return _answers(current.answers, options, current.answers, config, "response")


def _answers(
    current: AnswerSettings,
    patch: AnswerPatch,
    default: AnswerSettings,
    config: DialogueConfig,
    param: str,
) -> AnswerSettings:
    tools = _tools(
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


def _tools(
    current: ToolSettings,
    default: ToolSettings,
    tools: Raw | UnsetType,
    choice: Raw | UnsetType,
    is_parallel: bool | UnsetType | None,
    *,
    param: str,
    calls_tools: bool,
) -> ToolSettings:
    """The settings after a patch; UNSET keeps, null is the default. Raises BadRequestError naming a field."""
    if tools is UNSET and choice is UNSET and is_parallel is UNSET:
        return current
    given = _decoded(tools, f"{param}.tools", MAX_TOOL_BYTES, list, current.tools, default.tools)
    chosen = _decoded(
        choice, f"{param}.tool_choice", _MAX_CHOICE_BYTES, str | dict, current.choice, default.choice
    )
    is_parallel = either(is_parallel, current.is_parallel, default.is_parallel)
    if given and not calls_tools:
        raise BadRequestError(
            f"`{param}.tools`: the model calls no tools: its chat template writes no calls; "
            "if it was trained to, start the server with --tool-parser and the name of their format",
            code="unsupported_parameter",
            param=f"{param}.tools",
        )
    for index, tool in enumerate(given):
        if not isinstance(tool, dict):
            where = f"{param}.tools[{index}]"
            raise wrong(where, "is not an object")
    try:
        use = read_tool_use(list(given), chosen, is_parallel=is_parallel, is_nested=False)
    except BadRequestError as error:
        raise _prefixed(error, param) from None
    return ToolSettings(tuple(given), chosen, is_parallel, use)


def _decoded(
    raw: Raw | UnsetType,
    param: str,
    most: int,
    kind: Any,  # noqa: ANN401 (a type, or a union of types)
    current: Any,  # noqa: ANN401
    default: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401 (a `kind`)
    if raw is UNSET:
        return current
    size = len(bytes(memoryview(raw)))
    if size > most:
        raise wrong(param, f"has {size} bytes; the limit is {most}")
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise wrong(param, "is nested too deeply") from None
    if found is None:
        return default
    if not isinstance(found, kind):
        raise wrong(param, f"is {type(found).__name__}; see the types of OpenAI's sessions")
    return found


def _prefixed(error: BadRequestError, param: str) -> BadRequestError:
    """The same about a field that lies in `param`."""
    where = error.param or ""
    message = error.message.replace(f"`{where}`", f"`{param}.{where}`", 1)
    return BadRequestError(message, code=error.code, param=f"{param}.{where}" if where else param)
