"""Recordings → the encoder items of one model, within the lengths that it takes.

What a family says of it is `MediaRules.audio` (`engine/models/prompts.py`). Chats and transcripts make their
items here, so that a recording has the same ones in both.
"""

from __future__ import annotations

import math

from ...engine.models.info import ModelInfo
from ...engine.models.prompts import AudioClips, AudioWindows
from ...media.audio.audio_rule import AudioRule, open_audio_rule
from ...media.audio.encoder_windows import windows_of
from ...media.audio.features import FeatureConfig, FloatArray
from ...protocols.engine.messages import EncoderItem
from ...protocols.errors import MediaError, TooLargeError
from ...protocols.shared.audio_format import INTERNAL_RATE


class AudioItems:
    """How one model takes recordings. Thread-safe."""

    features: FeatureConfig | AudioRule
    """Equal ones have equal `repr`."""
    max_seconds: float
    """Of one recording."""

    def __init__(self, rules: AudioWindows | AudioClips, info: ModelInfo) -> None:
        """Raises ModelLoadError naming the file and the field at fault."""
        self._rules = rules
        if isinstance(rules, AudioClips):
            self.features = open_audio_rule(rules.rule, info.folder)
            self.max_seconds = rules.max_seconds
        else:
            self.features = FeatureConfig.from_folder(info.folder, rules.extractors or info.extractors)
            window_s = rules.window_frames * self.features.hop_length / INTERNAL_RATE
            self.max_seconds = math.inf if rules.max_windows is None else rules.max_windows * window_s

    def check_length(self, seconds: float) -> None:
        """Raise TooLargeError naming the limit for a longer recording than the model takes."""
        if seconds > self.max_seconds:
            raise TooLargeError(
                f"The audio has {seconds:.1f} s; the model takes up to {self.max_seconds:g} s at once. "
                "Send it in parts."
            )

    def items(self, samples: FloatArray) -> tuple[EncoderItem, ...]:
        """Of samples [n], mono at 16 kHz. Blocks: for a thread. Raises TooLargeError and MediaError."""
        self.check_length(len(samples) / INTERNAL_RATE)
        match self._rules, self.features:
            case AudioWindows() as rules, FeatureConfig() as config:
                items = windows_of(
                    samples,
                    config,
                    window_frames=rules.window_frames,
                    num_tokens=rules.num_tokens,
                    cut=rules.cut,
                )
            case AudioClips() as rules, rule if not isinstance(rule, FeatureConfig):
                items = rule.items(samples, rules.num_tokens)
            case _:
                raise AssertionError("each has its own")
        if not any(item.num_tokens for item in items):
            raise MediaError(
                f"The audio has {1000 * len(samples) / INTERNAL_RATE:.0f} ms, too few for the model; send "
                "more of it.",
                code="audio_too_short",
            )
        return items
