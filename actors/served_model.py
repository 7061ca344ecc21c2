"""A served model as those who face clients have it: its engine, wherever that runs, and what asks it.

Torch-free, and so in a process that runs no model. Read `actors/model_loading.py` and
`actors/engine_process/process.py` for where engines come from, `actors/speech/families/family.py` and
`engine/models/prompts.py` for the two ways of asking.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, Generic, TypeVar

from ..engine.models.info import ModelInfo
from ..engine.models.prompts import PromptBuilder
from ..engine.models.side import ModelSide
from ..engine.text.chat_template import read_template
from ..engine.text.template_trial import fault_of
from ..engine.text.tokenizer import TextTokenizer
from ..media.speech.voice_activity import VoiceActivityModel
from ..protocols.chat.content import ChatMessage, TextPart
from ..protocols.chat.request import Conversation
from ..protocols.errors import BadRequestError
from .config.engine import EngineConfig
from .config.validation import read_template_kwargs
from .inference.client import EngineClient
from .speech.families.family import SpeechFamily
from .speech.model import SpeechModel
from .speech.streaming.family import StreamingFamily
from .speech.streaming.transcriber import StreamingTranscriber
from .speech.transcriber import Transcriber
from .speech.windowed.family import WindowedFamily
from .speech.windowed.transcriber import WindowedTranscriber
from .text.embedding import EmbeddingModel, embedding_model

logger = logging.getLogger(__name__)

EngineT = TypeVar("EngineT", bound=EngineClient)

_HELLO: Final = Conversation(
    messages=(ChatMessage(role="user", content=(TextPart("Hello"),), extra={}, param="messages"),),
    template_kwargs={},
)


@dataclass(frozen=True, slots=True)
class LoadedModel(Generic[EngineT]):
    """A model's engine, not necessarily running yet, and the side of it that needs no device."""

    name: str
    engine: EngineT
    info: ModelInfo
    """`max_context` is what is served of it."""
    speech: SpeechModel | None
    """Transcribes: speech models."""
    prompts: PromptBuilder | None
    """Builds prompts: models that answer those of clients."""
    embeds: EmbeddingModel | None = None
    """Makes vectors of texts: models whose folder says how."""

    @property
    def abilities(self) -> tuple[str, ...]:
        """What the model can do, in words for people."""
        return abilities_of(self.speech, self.prompts, self.embeds)


def abilities_of(
    speech: SpeechModel | None, prompts: PromptBuilder | None, embeds: EmbeddingModel | None
) -> tuple[str, ...]:
    """What a model with these sides can do."""
    found: list[str] = [] if speech is None else list(speech.tasks)
    if prompts is not None:
        found += ["complete", "chat"] if prompts.has_template else ["complete"]
    if embeds is not None:
        found.append("embed")
    return tuple(found)


def loaded_model(
    engine: EngineT,
    info: ModelInfo,
    side: ModelSide,
    *,
    activity: VoiceActivityModel | None,
    config: EngineConfig,
) -> LoadedModel[EngineT]:
    """What asks a model's `engine`. `activity` says what speech models need not be asked about.

    Blocking: call it in a thread. Raises ModelLoadError for a chat template that cannot be used.
    """
    speech: SpeechModel | None = None
    if side.speech is not None:
        module = import_module(side.speech.file, f"{__package__}.speech.families")
        family: SpeechFamily | StreamingFamily | WindowedFamily = module.open_family(
            engine, info, side.speech.text
        )
        if isinstance(family, StreamingFamily):
            speech = StreamingTranscriber(family, activity)
        elif isinstance(family, WindowedFamily):
            speech = WindowedTranscriber(family, activity)
        else:
            speech = Transcriber(family, activity)
    prompts = None
    if side.prompts is not None:
        text = side.prompts.text
        if config.chat_template:
            text.chat_template = text.tool_template = read_template(Path(config.chat_template))
        else:
            _give_up_templates(info.name, text)
        defaults = read_template_kwargs(config.default_chat_template_kwargs)
        prompts = PromptBuilder(info, side.prompts, config.tool_parser, template_kwargs=defaults)
        if prompts.has_template:
            # It compiles the template, for which the first chat would hold the loop.
            with suppress(BadRequestError):
                prompts.chat(_HELLO)
    embeds = embedding_model(info.name, engine, info, side.embeds)
    return LoadedModel(info.name, engine, info, speech, prompts, embeds)


def _give_up_templates(name: str, text: TextTokenizer) -> None:
    """Drop those of a checkpoint that cannot be rendered within bounds, which the log reports."""
    names = tuple(text.names.items())
    if text.chat_template is not None and (fault := fault_of(text.chat_template, names)) is not None:
        logger.error(
            "%s: its chat template %s. It is not used, and chats are refused; --chat-template takes another",
            name,
            fault,
        )
        text.chat_template = text.tool_template = None
    if text.tool_template is not None and (fault := fault_of(text.tool_template, names)) is not None:
        logger.error("%s: its chat template for tools %s. The one without tools is used", name, fault)
        text.tool_template = text.chat_template
