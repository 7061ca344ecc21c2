"""The session object of sessions that answer (type `realtime`): what a client may change, and what we show.

What transcription sessions have, too, is `protocols/realtime/session.py`: how audio comes in is one thing,
whatever becomes of it. Merging a patch is `realtime/dialogue/settings.py`; events are in
`protocols/realtime/conversation_events.py` and `protocols/realtime/responses.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from ..shared.sampling import MAX_INT, Temperature, TopP
from .session import AudioPatch, AudioView, Ignored, Include, LimitsView

MAX_OUTPUT_TOKENS: Final = MAX_INT
OutputTokens = Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)] | Literal["inf"]
Instructions = Annotated[str, Meta(max_length=1_000_000)]
Seed = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Modality = Literal["text"]
"""What answers have."""
RequestedModality = Literal["text", "audio"]
"""What may be asked for. Frameworks ask for speech beside all else that a session needs, so that a refusal
would cost them that; they get text, as what is in force says."""


class TokenLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens of a conversation, behind the instructions and the tools."""

    post_instructions: Annotated[int, Meta(ge=1, lt=2**31)] | None = None


class RetentionRatio(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag="retention_ratio",
    omit_defaults=True,
):
    """What of its bound is left of a conversation that has come to it."""

    retention_ratio: Annotated[float, Meta(ge=0.0, le=1.0)]
    token_limits: TokenLimits | None = None

    @property
    def most_tokens(self) -> int | None:
        """Of the conversation, where the client bounds it."""
        return None if self.token_limits is None else self.token_limits.post_instructions


Truncation = Literal["auto", "disabled"] | RetentionRatio


class ReasoningPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """`session.reasoning`: how much a model thinks before it answers, where its template can say it."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class VideoPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """`session.video` (extension) of an update: how long live frames are remembered, and which are worth it.

    `min_change` is how much a frame must differ from the last one that was kept, from 0 (keep all) to 1.
    """

    retention_s: Annotated[float, Meta(ge=1.0, le=86_400.0)] | UnsetType | None = UNSET
    retention_tokens: Annotated[int, Meta(ge=1, lt=2**31)] | UnsetType | None = UNSET
    min_change: Annotated[float, Meta(ge=0.0, le=1.0)] | UnsetType | None = UNSET


class VideoView(Struct, frozen=True):
    """`session.video` in force."""

    retention_s: float
    retention_tokens: int
    min_change: float


class AnswerPatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How answers are made: of a session, and of one response. `temperature`, `top_p` and `seed` are
    extensions."""

    instructions: Instructions | UnsetType | None = UNSET
    output_modalities: list[RequestedModality] | UnsetType | None = UNSET
    max_output_tokens: OutputTokens | UnsetType | None = UNSET
    tools: Raw | UnsetType = UNSET
    tool_choice: Raw | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType | None = UNSET
    reasoning: ReasoningPatch | UnsetType | None = UNSET
    temperature: Temperature | UnsetType | None = UNSET
    top_p: TopP | UnsetType | None = UNSET
    seed: Seed | UnsetType | None = UNSET
    prompt: UnsetType | None = UNSET
    """Templates are kept by OpenAI only."""


class DialogueAudioPatch(AudioPatch, frozen=True, forbid_unknown_fields=True):
    """`session.audio` of an update. `output` is about speech out, of which there is none."""

    output: Ignored = UNSET


class DialoguePatch(AnswerPatch, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`session` of a `session.update` of type `realtime`.

    `video` is an extension. The fields below `include` are what we show, or what only another server has a
    use for; a client may leave them in.
    """

    type: Literal["realtime"] | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    audio: DialogueAudioPatch | UnsetType | None = UNSET
    truncation: Truncation | UnsetType | None = UNSET
    video: VideoPatch | UnsetType | None = UNSET
    include: list[Include] | UnsetType | None = UNSET
    tracing: Ignored = UNSET
    id: Ignored = UNSET
    object: Ignored = UNSET
    expires_at: Ignored = UNSET
    limits: Ignored = UNSET
    capabilities: Ignored = UNSET
    resume_token: Ignored = UNSET


class DialogueLimitsView(LimitsView, frozen=True):
    """The bounds of a session that answers: those of every session, and of its conversation."""

    max_context: int = 0
    """Tokens of a prompt and its answer."""
    max_items: int = 0
    max_media_bytes: int = 0
    """Of the pictures and sounds in the conversation, as they came."""
    max_item_chars: int = 0
    """Of the text in an item."""
    max_fps: float = 0.0
    """Live frames of a second; 0: none are taken."""
    max_frame_bytes: int = 0


class DialogueView(Struct, frozen=True, kw_only=True, tag_field="type", tag="realtime"):
    """The full effective session, as `session.created` and `session.updated` carry it."""

    id: str
    object: Literal["realtime.session"] = "realtime.session"
    expires_at: int
    model: str
    output_modalities: list[Modality] = field(default_factory=lambda: ["text"])
    instructions: str
    tools: list[Any] = field(default_factory=list)
    tool_choice: Any = "auto"
    max_output_tokens: int | Literal["inf"]
    reasoning: ReasoningPatch | UnsetType = UNSET
    truncation: Truncation
    temperature: float | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    audio: AudioView
    video: VideoView | UnsetType = UNSET
    """Where the model takes live frames (extension)."""
    include: list[Include] = field(default_factory=list)
    limits: DialogueLimitsView
    capabilities: list[str]
    resume_token: str | UnsetType = UNSET
    """Only in `session.created`: what `session.resume` must show."""
