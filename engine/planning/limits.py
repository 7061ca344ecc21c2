"""The bounds of one engine, and the check of each request against them before it is queued.

A request that passes can be run to its end, if need be alone. Read `engine/planning/scheduler.py` next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final, Literal, TypeGuard

from ...protocols.engine.messages import (
    Align,
    AnyRequest,
    InputChunk,
    KvSource,
    MediaSpan,
    NgramDraft,
    Pool,
    Prefill,
    Sample,
    Transduce,
    TransduceRequest,
)
from ...protocols.errors import BadRequestError
from .kv.groups import ONE_GROUP, PagedGroup
from .positions import PositionRule, plain_positions
from .proposers import DraftModel

SchedulingPolicy = Literal["service-classes", "first-come"]
"""The policies of `engine/planning/policies/`."""

_MAX_VOCAB_SIZE: Final = 2**31
_MAX_MATCH: Final = 16  # n-grams of every length are indexed
_MAY_BE_ZERO: Final = frozenset({"max_parked_blocks", "num_state_slots", "input_frames_per_row"})


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Bounds of one engine. `num_blocks` and `block_size` must be the runner's."""

    num_blocks: int
    block_size: int = 16
    max_context: int = 448
    """Tokens of prompt and answer together: the model's own limit."""
    max_running: int = 64
    """Sequences in one forward."""
    max_waiting: int = 1024
    """Requests that may wait before new ones are refused."""
    max_tokens_per_step: int = 4096
    """Decoder tokens of one forward, drafts included. What runs as a whole has as many of its own."""
    scheduling_policy: SchedulingPolicy = "service-classes"
    """By which rules requests share steps. The next three bounds are those of service classes."""
    num_low_priority_tokens: int = 8
    """Of each step that serves a better class of requests, the tokens that worse ones have, and of all slots
    as many: `engine/planning/policies/service_classes.py`."""
    max_batch_tokens_per_step: int | None = None
    """Tokens of a step that serves the worst class alone (None: `max_tokens_per_step`): a step cannot be
    left, and whoever comes meanwhile waits for its end."""
    low_priority_interval: int = 1
    """Of so many steps that serve a better class, worse ones take part in one."""
    max_prefill_chunk: int | None = None
    """Prompt tokens one request may feed in a step. None: all it wants while nobody else has prompt tokens to
    feed, else half of what is left of the budget (but a block)."""
    max_encodes_per_step: int = 4
    """Items per step: an encode delays the tokens of every running request by its own duration."""
    max_encoder_tokens_per_step: int = 4096
    """Rows of encodings per step, those that are attended to included; one item always goes, however
    large."""
    overlap_encoder: bool = False
    """Whether encodes are plans of their own while somebody speaks, done beside the steps and not in them:
    one at a time. For a device with cores to compute while others wait for memory."""
    max_rows_during_live: int | None = None
    """Rows of the longest encoding that begins while live requests decode, if they are soon done (None: any):
    where a device encodes for many times as long as it decodes a token."""
    frames_per_row: float = 0.0
    """Frames of features to one row of an encoding that is attended to (0: none is)."""
    max_plans_in_flight: int = 2
    """How many plans the actor lets be in flight at once; the scheduler itself takes any number."""
    prefix_caching: bool = True
    """Whether requests find the KV of blocks that others computed."""
    groups: tuple[PagedGroup, ...] = ONE_GROUP
    """Layers that share a block table. All groups take their blocks from the one pool."""
    num_state_slots: int = 0
    """Slots for the states of sequences and for snapshots of them; 0 for a model without states."""
    snapshot_interval: int = 32
    """Blocks between two snapshots of a state: a prefix is found again up to one of them."""
    input_frames_per_row: int = 0
    """Frames of a fed chunk that count as a token of a step; 0 for a model whose requests are not fed."""
    max_rows_per_chunk: int = 128
    """The largest chunk, in such tokens: a step cannot be left while it runs."""
    max_unread_chunks: int = 64
    """Chunks of one request that may wait to be run before more are refused."""
    corrects_starts: bool = False
    """Whether the runner corrects a step that supposes too much of drafts in flight
    (`SequenceStep.from_position`): then a drafted sequence is planned again while its drafts are verified."""
    draft_model: DraftModel | None = None
    """What drafts on the device, with layers in `groups` if it has layers."""
    fingerprint: str = ""
    """What names the blocks' maker: checkpoint, dtype, adapter."""
    max_parked_blocks: int | None = None
    """Blocks that sessions may keep between their requests (None: half of the pool)."""
    is_bidirectional: bool = False
    """Whether tokens attend to what follows them: prompts are then run as a whole, without a cache."""
    positions: PositionRule = plain_positions
    """Where the tokens of a prompt with items lie on rotary axes: the model family's."""
    sees_whole_items: bool = False
    """Whether rows of an item attend to all of it: those of one item are fed in one step, whatever its
    budget."""
    sees_whole_prompts: bool = False
    """Whether rows of a prompt attend to all of it, and tokens of the answer to what precedes them: a prompt
    is fed in one step, and blocks are found by prompts that are equal as a whole."""
    vocab_size: int | None = None
    """Prompt and draft ids are below it (None: below 2³¹)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in _MAY_BE_ZERO else 1
            if isinstance(value, int) and not isinstance(value, bool) and value < least:
                raise ValueError(f"{field.name} is {value}; allowed: at least {least}")
        if self.input_frames_per_row and not self.num_state_slots:
            raise ValueError("num_state_slots is 0; allowed: at least 1 where requests are fed")

    def is_whole(self, request: AnyRequest) -> bool:
        """Whether one step runs all of it, without the cache of keys and values."""
        return self.is_bidirectional or isinstance(request.task, Align)

    def check(self, request: AnyRequest) -> None:
        """Raise BadRequestError, with the numbers, if this request could never run."""
        if isinstance(request.task, Transduce):
            self._check_transduce(request, request.task)
            return
        if self.input_frames_per_row:
            raise BadRequestError("this model turns what it is fed into text, and takes no prompts")
        num_prompt = len(request.prompt_token_ids)
        if num_prompt == 0:
            raise BadRequestError("the prompt is empty")
        match request.task:
            case Sample() | Prefill() if self.is_bidirectional:
                raise BadRequestError("this model makes vectors of texts, and generates none")
            case Sample() as sample:
                self._check_sample(sample, num_prompt)
            case Align() as align:
                _check_align(align, num_prompt)
            case Pool(num_dimensions=int(num_dimensions)) if num_dimensions < 1:
                raise BadRequestError(
                    f"dimensions is {num_dimensions}; allowed: at least 1", param="dimensions"
                )
        self._check_undivided(request)
        if num_prompt > self.max_context:
            raise BadRequestError(
                f"the prompt has {num_prompt} tokens; the model's context is {self.max_context} tokens"
            )
        if request.kv_from is not None:
            self._check_source(request, request.kv_from)
        self._check_ids("prompt", request.prompt_token_ids)
        _check_media(request.media, num_prompt)
        num_blocks = self._num_blocks(num_prompt)
        if num_blocks > self.num_blocks and not self.is_whole(request):
            raise BadRequestError(
                f"the prompt has {num_prompt} tokens: it needs {num_blocks} blocks of {self.block_size} "
                f"tokens, the engine has {self.num_blocks}"
            )

    def undivided(self, request: AnyRequest) -> tuple[tuple[int, int], ...]:
        """From where to where in its prompt tokens attend to each other in both directions. The tokens of one
        such span that have no KV yet are fed in one step."""
        if self.sees_whole_prompts:
            return ((0, len(request.prompt_token_ids)),)
        if self.sees_whole_items:
            return tuple((span.start, span.start + span.num_tokens) for span in request.media)
        return ()

    def _check_undivided(self, request: AnyRequest) -> None:
        longest = max((end - start for start, end in self.undivided(request)), default=0)
        if longest > self.max_tokens_per_step:
            what = "the prompt" if self.sees_whole_prompts else "an item of the prompt"
            raise BadRequestError(
                f"{what} has {longest} tokens, of which each attends to all; "
                f"a step has {self.max_tokens_per_step}"
            )

    def check_chunk(self, chunk: InputChunk) -> None:
        """Raise BadRequestError, with the numbers, if this chunk could never be run."""
        features, num_valid = chunk.features, chunk.num_valid
        num_frames = features.shape[-1]
        if features.encoded is not None or len(features.data) != 4 * math.prod(features.shape):
            raise BadRequestError(
                f"a chunk of shape {features.shape} has {len(features.data)} bytes; needed: float32 numbers, "
                f"{4 * math.prod(features.shape)} bytes"
            )
        least = 0 if chunk.is_last else num_frames
        if not (least <= num_valid <= num_frames and (num_frames or chunk.is_last)):
            raise BadRequestError(
                f"num_valid is {num_valid} of {num_frames} frames; allowed: all of them, at least 1; in the "
                "last chunk fewer too"
            )
        if self.num_rows(chunk) > self.max_rows_per_chunk:
            raise BadRequestError(
                f"a chunk has {num_frames} frames; allowed: up to "
                f"{self.max_rows_per_chunk * self.input_frames_per_row}"
            )

    def num_rows(self, chunk: InputChunk) -> int:
        """Tokens of a step that a chunk counts as."""
        return max(-(-chunk.features.shape[-1] // self.input_frames_per_row), 1)

    def _check_transduce(self, request: AnyRequest, task: Transduce) -> None:
        if not self.input_frames_per_row:
            raise BadRequestError("this model takes whole inputs: its requests cannot be fed while they run")
        if request.prompt_token_ids or request.media or request.encoder_hash or request.session:
            raise BadRequestError("a request that is fed has no prompt, items or session")
        if task.lookahead < 0:
            raise BadRequestError(f"lookahead is {task.lookahead}; allowed: at least 0", param="lookahead")

    def _check_sample(self, sample: Sample, num_prompt: int) -> None:
        max_tokens = sample.sampling.max_tokens
        if max_tokens < 1:
            raise BadRequestError(f"max_tokens is {max_tokens}; allowed: at least 1", param="max_tokens")
        if num_prompt + max_tokens > self.max_context:
            raise BadRequestError(
                f"the prompt has {num_prompt} tokens and max_tokens is {max_tokens}; the model's context is "
                f"{self.max_context} tokens for both"
            )
        num_blocks = self._num_blocks(num_prompt + max_tokens - 1)  # the last token is never fed
        if num_blocks > self.num_blocks:
            raise BadRequestError(
                f"the prompt has {num_prompt} tokens and max_tokens is {max_tokens}: together they need "
                f"{num_blocks} blocks of {self.block_size} tokens, the engine has {self.num_blocks}"
            )
        if sample.probe is not None:
            if not 0 <= sample.probe.position < num_prompt:
                raise BadRequestError(f"the probe's position {sample.probe.position} is not in the prompt")
            self._check_ids("probe", (sample.probe.token_id,))
        self._check_ids("draft", sample.draft_token_ids)
        if sample.ngram is not None:
            _check_ngram(sample.ngram)

    def _check_source(self, request: AnyRequest, source: KvSource) -> None:
        if source.num_tokens < 1:
            raise BadRequestError(f"kv_from.num_tokens is {source.num_tokens}; allowed: at least 1")
        if self.groups is not ONE_GROUP or self.num_state_slots or self.is_whole(request):
            raise BadRequestError(
                "kv_from is for prompts of models whose layers all keep the keys and values of all tokens; "
                "leave it out"
            )

    def _num_blocks(self, num_tokens: int) -> int:
        size, most = self.block_size, self.max_tokens_per_step
        if self.groups is ONE_GROUP:
            return -(-num_tokens // size)
        return sum(group.max_blocks(num_tokens, size, most) for group in self.groups)

    def _check_ids(self, name: str, token_ids: tuple[int, ...]) -> None:
        if not token_ids:
            return
        least, most = min(token_ids), max(token_ids)
        if least < 0:
            raise BadRequestError(f"the {name} has the token id {least}; allowed: at least 0")
        vocab_size = _MAX_VOCAB_SIZE if self.vocab_size is None else self.vocab_size
        if most >= vocab_size:
            raise BadRequestError(
                f"the {name} has the token id {most}; the model's vocabulary ends at {vocab_size - 1}"
            )


def is_transduce(request: AnyRequest) -> TypeGuard[TransduceRequest]:
    """Whether it is fed while it runs."""
    return isinstance(request.task, Transduce)


def _check_align(align: Align, num_tokens: int) -> None:
    if not 0 < align.text_start <= align.text_end < num_tokens:
        raise BadRequestError(
            f"the text to align, {align.text_start} to {align.text_end}, is not inside the "
            f"{num_tokens} tokens between the prompt and the end token"
        )
    if align.num_frames < 1:
        raise BadRequestError("there is no audio to align to")


def _check_media(spans: tuple[MediaSpan, ...], num_prompt: int) -> None:
    end = 0
    for number, span in enumerate(spans):
        where = f"media item {number} at tokens {span.start} to {span.start + span.num_tokens}"
        if span.num_tokens < 1:
            raise BadRequestError(f"media item {number} has {span.num_tokens} tokens; allowed: at least 1")
        if span.start < end:
            raise BadRequestError(f"{where} begins before the end of what precedes it, {end}")
        end = span.start + span.num_tokens
        if end > num_prompt:
            raise BadRequestError(f"{where} is not inside the prompt of {num_prompt} tokens")
        if span.grid is not None:
            time, height, width = span.grid
            if min(span.grid) < 1 or time * height * width > span.num_tokens:
                raise BadRequestError(
                    f"{where} has a grid of {time}×{height}×{width} for {span.num_tokens} tokens"
                )
        if span.since_start is not None and (span.since_start < 0 or span.grid is None or not number):
            raise BadRequestError(
                f"{where} has since_start {span.since_start}; allowed: at least 0, for an item with a grid "
                "after the first of its video"
            )


def _check_ngram(ngram: NgramDraft) -> None:
    if ngram.num_tokens < 1:
        raise BadRequestError(f"the n-gram draft's num_tokens is {ngram.num_tokens}; allowed: at least 1")
    if not 1 <= ngram.min_match <= ngram.max_match <= _MAX_MATCH:
        raise BadRequestError(
            f"the n-gram draft matches {ngram.min_match} to {ngram.max_match} tokens; allowed: 1 to "
            f"{_MAX_MATCH}, in rising order"
        )
