"""PaliGemma and PaliGemma 2: pictures are squares in front of one question, and all of it sees all of it.

Its checkpoints have no chat template; prompts are as its processor makes them of one question.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...family import Checkpoint, MediaFamily, one_square

_TEMPLATE: Final = (
    "{% if messages | length != 1 or messages[0].role != 'user' %}"
    "{{ raise_exception('this model answers one question: give one user message, and no system prompt') }}"
    "{% endif %}"
    "{% set content = messages[0].content %}"
    "{% if content is string %}{{ bos_token + content }}{% else %}"
    "{% for part in content if part.type == 'image' %}IMAGE{% endfor %}{{ bos_token }}"
    "{% for part in content if part.type == 'text' %}{{ part.text }}{% endfor %}"
    "{% endif %}{{ '\n' }}"
)


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    height, width = checkpoint.sides("vision_config.image_size")
    patch = checkpoint.size("vision_config.patch_size")
    family = one_square(checkpoint, (height // patch) * (width // patch))
    return replace(
        family,
        sees_whole_prompts=checkpoint.value("text_config.use_bidirectional_attention", default=True) is True,
        template=_TEMPLATE.replace("IMAGE", family.places["image"].token),
    )
