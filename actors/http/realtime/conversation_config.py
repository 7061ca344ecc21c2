"""How a live session begins that a model answers in: what it may be shown, how much of that is remembered.

From what the model is; `actors/http/service.py` puts it into a session's configuration.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ....realtime.dialogue.config import DialogueConfig, VideoConfig
from ...text.generation import TextModel

_LIVE_FPS: Final = 2.0
"""Frames of a second for a model that does not say how many it looks at."""


def dialogue_config(answers: TextModel, aliases: tuple[str, ...]) -> DialogueConfig:
    """Of sessions that `answers` answers in, which has these names, too."""
    builder = answers.prompter.builder
    return DialogueConfig(
        model=answers.name,
        aliases=aliases,
        kinds=builder.media.kinds,
        calls_tools=builder.answers.tools is not None,
        max_context=builder.info.max_context,
        video=_video_config(answers),
    )


def _video_config(answers: TextModel) -> VideoConfig:
    """What may be shown to the model, and how much of it is remembered."""
    builder, config = answers.prompter.builder, VideoConfig()
    if "video" not in builder.media.kinds or not builder.media.is_live:
        return config
    return msgspec.structs.replace(config, max_fps=answers.prompter.video_fps or _LIVE_FPS)
