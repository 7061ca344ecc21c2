"""A checkpoint of a family of `media_families/`, opened by us and by `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from sensorium.engine.models.prompts import AudioClips, Prompt
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.source import ModelSource
from sensorium.media.audio.audio_rule import open_audio_rule
from sensorium.media.audio.encoder_windows import windows_of
from sensorium.media.audio.features import FeatureConfig
from sensorium.media.vision.pixel_rule import open_rule
from sensorium.protocols.chat.content import ChatMessage, MediaPart, Part, TextPart
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.engine.messages import MediaItems
from support.exactness import Case, reference_case
from support.media_family import Content, Family, Sound, model_class
from support.vision_files import picture


class Checkpoint:
    """One, ours and the reference's."""

    def __init__(self, folder: Path, family: Family) -> None:
        torch.set_num_threads(1)
        self.family = family
        self.source: ModelSource = open_model(folder, device="cpu", dtype="float32")
        self.model = self.source.load()
        self.reference = model_class(family).from_pretrained(folder, dtype=torch.float32).eval()
        prompts = self.source.side.prompts
        assert prompts is not None
        self.prompts = prompts
        self._folder = folder

    def opened(self, content: Content) -> MediaItems:
        """What becomes of a medium."""
        rules = self.prompts.media
        if isinstance(content, Sound):
            assert rules.audio is not None
            if isinstance(rules.audio, AudioClips):
                rule = open_audio_rule(rules.audio.rule, self._folder)
                return MediaItems("audio", rule.items(content.samples, rules.audio.num_tokens))
            config = FeatureConfig.from_folder(self._folder, rules.audio.extractors)
            items = windows_of(
                content.samples,
                config,
                window_frames=rules.audio.window_frames,
                num_tokens=rules.audio.num_tokens,
                cut=rules.audio.cut,
            )
            return MediaItems("audio", items)
        assert isinstance(content, tuple)
        assert rules.pixels is not None
        return open_rule(rules.pixels, self._folder).prepare_picture(picture(*content))

    def prompt(self, *content: Content) -> Prompt:
        """A question of texts and media."""
        return self.prompts.chat(
            _conversation(content), [self.opened(c) for c in content if not isinstance(c, str)]
        )

    def case(self, *content: Content) -> Case:
        """A question of texts and media, with the reference's answer."""
        return self.reference_case(self.prompt(*content))

    def reference_case(self, prompt: Prompt) -> Case:
        """A prompt with the reference's answer."""
        by_hash = {item.content_hash: item for item in prompt.items}
        items = [by_hash[span.content_hash] for span in prompt.spans]
        ids = torch.tensor([prompt.token_ids])
        inputs = self.family.inputs(items, ids) if items or self.family.has_text_inputs else {}
        return reference_case(
            self.reference, prompt.token_ids, items=prompt.items, spans=prompt.spans, **inputs
        )


def _conversation(content: Sequence[Content]) -> Conversation:
    parts: list[Part] = [
        TextPart(each)
        if isinstance(each, str)
        else MediaPart("audio" if isinstance(each, Sound) else "image", b"", param="messages")
        for each in content
    ]
    message = ChatMessage(role="user", content=tuple(parts), extra={}, param="messages[0]")
    return Conversation(messages=(message,), template_kwargs={})
