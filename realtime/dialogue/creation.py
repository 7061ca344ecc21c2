"""What a client creates, as an item of the conversation. Knows what the model takes; read next:
`realtime/dialogue/editor.py`.
"""

from __future__ import annotations

from ...protocols.audio import wave_file
from ...protocols.container_format import ContainerFormat, InputFormat
from ...protocols.errors import BadRequestError
from ...protocols.messages import ItemId
from ...protocols.realtime_items import AudioGiven, NewItem, PartGiven, Picture
from .config import DialogueConfig
from .items import Item
from .parts import ItemPart, Sound


def new_item(given: NewItem, item_id: ItemId, config: DialogueConfig, audio_format: InputFormat) -> Item:
    """What a client gave. Raises BadRequestError for media that the model does not take."""
    parts = [
        _part(part, f"{given.param}.content[{index}]", config, audio_format)
        for index, part in enumerate(given.parts)
    ]
    item = Item(item_id, given.role, parts)
    item.waits = bool(item.media())
    return item


def _part(part: PartGiven, where: str, config: DialogueConfig, audio_format: InputFormat) -> ItemPart:
    match part:
        case Picture() if "image" not in config.kinds:
            raise _unsupported(where, "an image", config)
        case AudioGiven(data, transcript):
            if "audio" in config.kinds:
                if isinstance(audio_format, ContainerFormat):
                    return Sound(data, transcript)
                if not data or len(data) % audio_format.bytes_per_frame:
                    raise BadRequestError(
                        f"`{where}.audio` has {len(data)} bytes; allowed: whole samples of "
                        f"{audio_format.bytes_per_frame} bytes",
                        code="invalid_audio",
                        param=f"{where}.audio",
                    )
                return Sound(wave_file(data, audio_format), transcript)
            if transcript:
                return Sound(None, transcript)
            raise _unsupported(where, "audio without a transcript", config)
        case _:
            return part


def _unsupported(where: str, what: str, config: DialogueConfig) -> BadRequestError:
    takes = ", ".join(sorted(config.kinds | {"text"}))
    return BadRequestError(
        f"`{where}` is {what}; the model {config.model} takes {takes}", code="unsupported_media", param=where
    )
