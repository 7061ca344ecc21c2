"""What is said to an engine and what it answers: plain data, so that it can sit in another process.

No behaviour, no tensors, no sockets. Commands are imperative, events past tense. The wire formats
clients see are in `protocols/realtime/events.py` and `protocols/transcription/rest.py`; read
`actors/inference/client.py` next for the methods that take and give these.
"""

from __future__ import annotations

from typing import Final, Generic, Literal, NewType, TypeVar

import msgspec

RequestId = NewType("RequestId", str)
ItemId = NewType("ItemId", str)
SessionKey = NewType("SessionKey", str)
"""Names the engine-side state of one live session: what its next request may take over."""
ContentHash = NewType("ContentHash", str)
"""Hex digest over shape, dtype and bytes of an encoder input: equal hash, equal encoder output."""

FinishReason = Literal["stop", "length", "abort", "error"]

Fault = Literal[
    "no_token", "cannot_follow", "not_finite", "out_of_memory", "not_encoded", "slow_reader", "defect"
]
"""Why one request failed alone: its sampling rules leave no token, its answer cannot follow its grammar, the
model computed NaN, no memory is left, an item cannot be encoded, its reader is too slow, or we are wrong."""


FloatType = Literal["float32", "bfloat16", "float16"]
"""How numbers are written in bytes, little-endian."""
FLOAT_BYTES: Final[dict[FloatType, int]] = {"float32": 4, "bfloat16": 2, "float16": 2}


class Features(msgspec.Struct, frozen=True):
    """One array as plain data, C order: float32 for an encoder, or what an encoder gave elsewhere.

    Audio: `shape` is (num_mel_bins, num_frames). Vision: (num_patches, patch_size), and `grid` counts
    patches by (time, height, width). With `encoded`, the type of its numbers, it is no input but an encoding:
    (num_tokens, width), each row with what is added to the decoder's first layers (deepstack) behind it.
    """

    shape: tuple[int, ...]
    data: bytes
    grid: tuple[int, int, int] | None = None
    encoded: FloatType | None = None
    num_before: int = 0
    """So many frames in front, an even number, are heard, and not part of the encoding (Whisper)."""


class ItemKey(msgspec.Struct, frozen=True):
    """What an engine must know of an item to find it, or room for it."""

    content_hash: ContentHash
    num_tokens: int = 0


class EncoderItem(msgspec.Struct, frozen=True):
    """One unit of encoder work (a window of audio, an image, a pair of video frames), addressed by the hash
    of its final features. No item's encoding depends on another item."""

    content_hash: ContentHash
    features: Features
    num_tokens: int = 0
    """Rows of its encoding; 0 for one that is attended to and not part of the prompt (Whisper)."""

    @property
    def key(self) -> ItemKey:
        """All of it but the features."""
        return ItemKey(self.content_hash, self.num_tokens)

    def lean(self) -> EncoderItem:
        """Without the features' values."""
        return msgspec.structs.replace(self, features=msgspec.structs.replace(self.features, data=b""))


class Replaced(msgspec.Struct, frozen=True):
    """A damaged frame that was to be looked at: the time of what is shown instead, None for nothing."""

    wanted_s: float
    shown_s: float | None
    param: str = ""
    """The part of the request whose frame it is, once that is known."""


MediaKind = Literal["image", "audio", "video"]


class MediaItems(msgspec.Struct, frozen=True):
    """A picture, a clip, what a camera saw or a recording: what an encoder takes of it, in order.

    A picture is one item. What moves has one for each pair of frames, and the time of each in seconds,
    whether it came as a file or as live frames. A recording has one for each window. `replaced` tells of
    frames of a file that could not be shown; the times of others in their place are their own."""

    kind: MediaKind
    items: tuple[EncoderItem, ...]
    times_s: tuple[float, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    starts_s: tuple[float, ...] = ()
    """Of what moves: the time of each item's first frame, where `times_s` has the mean of all."""
    duration_s: float | None = None
    """Of a video in a file, frames that are not sampled included."""

    def lean(self) -> MediaItems:
        """Without the features' values: what finds the encodings of items that were sent before."""
        return msgspec.structs.replace(self, items=tuple(item.lean() for item in self.items))


class MediaSpan(msgspec.Struct, frozen=True):
    """Where an item lies in a prompt: tokens `start` to `start + num_tokens` are its placeholders.

    `grid` is (time, height, width) in *merged* patches for vision whose positions follow it, or else None.
    Their product is `num_tokens`, or less where rows of an item lie outside its grid. Spans of a prompt are
    in order and do not overlap.
    """

    content_hash: ContentHash
    start: int
    num_tokens: int
    grid: tuple[int, int, int] | None = None
    kind: MediaKind | None = None
    """None: of pictures if there is a grid, or else of audio."""
    since_start: int | None = None
    """Of an item that goes on with a video: how many positions in time it lies behind the video's first item,
    with whose place it shares the rest. None: it begins where the text in front of it ends."""

    @property
    def is_visual(self) -> bool:
        """Whether it is of an image or a video."""
        return self.medium != "audio"

    @property
    def medium(self) -> MediaKind:
        """What it is of."""
        return self.kind or ("audio" if self.grid is None else "image")


class Grammar(msgspec.Struct, frozen=True):
    """What the whole answer must match.

    `source` is a JSON schema, a regular expression, a JSON list of strings (choice), or a grammar in Lark or
    in EBNF as llama.cpp writes it. An "answer" is a JSON object: `lark`, in which @name is one of `parts`:
    `{"json": schema}`, or `{"kind": …, "source": …}` of another grammar (a JSON schema as an object).
    """

    kind: Literal["json_schema", "json_object", "regex", "choice", "lark", "answer"]
    source: str = ""


class Phrases(msgspec.Struct, frozen=True):
    """What is likelier to be said than the model thinks, as sequences of vocabulary ids.

    It counts after the last `start_token` of prompt and answer: `first` are phrases as they are written
    there, `within` as they are written later.
    """

    start_token: int
    first: tuple[tuple[int, ...], ...]
    within: tuple[tuple[int, ...], ...]
    begin: float
    """Added to the logits of tokens that begin a phrase."""
    go_on: float
    """Added to those that go on with one that was begun."""


class ReasoningBudget(msgspec.Struct, frozen=True):
    """How long an answer may think in front of what it says, all its thoughts together."""

    num_tokens: int
    start: tuple[int, ...]
    """Tokens behind which it thinks, at least one."""
    ends: tuple[int, ...]
    """Each of these ends thoughts; the first has to when the budget is used up."""
    is_open: bool = False
    """It begins inside of thoughts."""


class NgramDraft(msgspec.Struct, frozen=True):
    """Draft by prompt lookup: what followed the last earlier occurrence of the newest tokens.

    The longest match of `max_match` to `min_match` tokens wins; at most `num_tokens` are proposed a step.
    """

    num_tokens: int = 8
    max_match: int = 4
    min_match: int = 2


class SamplingParams(msgspec.Struct, frozen=True):
    """How tokens are chosen. Ids in the tuples are vocabulary ids; probabilities are natural logs."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    suppress_token_ids: tuple[int, ...] = ()
    begin_suppress_token_ids: tuple[int, ...] = ()
    """Suppressed for the first generated token only."""
    allowed_token_ids: tuple[int, ...] | None = None
    """If given, every generated token is one of these (language detection: max_tokens=1)."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    """Both count generated tokens only, as OpenAI defines them."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens seen in prompt or answer (1: off)."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Tokens of which the last may not follow the others, in prompt and answer."""
    no_repeat_ngram_size: int = 0
    """No so many tokens in a row, up to 128, come twice in prompt and answer, but for its end (0: off)."""
    ngrams_from: int = 0
    """Of the prompt only what follows so many tokens counts for that."""
    min_tokens: int = 0
    """Stop tokens are forbidden before this many were generated."""
    ignore_eos: bool = False
    """Stop tokens neither end the answer nor are hidden: for measuring."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer and are not part of it (the detokenizer's business)."""
    includes_stop: bool = False
    """The one that ends it is its last text."""
    shown: tuple[tuple[int, str], ...] = ()
    """Special tokens that are text all the same, by id (the detokenizer's business, too)."""
    grammar: Grammar | None = None
    phrases: Phrases | None = None
    phrases_from: int = 0
    """Phrases make nothing likelier before so many tokens were generated."""
    reasoning_budget: ReasoningBudget | None = None
    logprobs: int | None = None
    """Report the log-probability of each generated token (after rules and penalties, before temperature,
    without the bonuses of phrases), and this many of the likeliest alternatives; None: nothing."""
    prompt_logprobs: int | None = None
    """The same for each prompt token but the first, from raw logits."""
    num_beams: int = 1
    """Above 1: of so many answers that grow side by side the likeliest is given, at its end
    (`engine/text/beam_search.py`). Greedy, and without what looks at the answer so far."""
    length_penalty: float = 1.0
    """Power of the length by which a beam's log-probability is divided: more favours longer answers."""
    patience: float = 1.0
    """How many answers must have ended, for each beam, before the search may."""


class ProbabilityProbe(msgspec.Struct, frozen=True):
    """Report softmax(raw logits)[token_id] after prompt position `position` (0-based).

    Whisper's no-speech probability is the probe at the `<|startoftranscript|>` position.
    """

    position: int
    token_id: int


Service = Literal["live", "interactive", "batch"]
"""Classes of service, best first: speech while it is spoken; a person who waits; work nobody watches."""


class Lane(msgspec.Struct, frozen=True):
    """When a request gets its turn: all of a better class first, then by priority, then in turn by caller."""

    service: Service = "interactive"
    priority: int = 0
    """Lower runs first, within the class only."""
    caller: str = ""
    """Who asks, where that is to make a difference; all that say nothing are one."""


INTERACTIVE: Final = Lane()


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """Generate tokens after the prompt. Answered by `TokensSampled`, once or more often.

    `draft_token_ids` is a guess at the answer (the previous hypothesis): it is verified in the prompt's
    own forward pass and never changes the result, only the number of steps.
    """

    sampling: SamplingParams
    draft_token_ids: tuple[int, ...] = ()
    rejoins_draft: bool = False
    """Where the answer leaves the draft, look for where it meets it again: it is an older version of it."""
    ngram: NgramDraft | None = None
    """Drafts for the steps that have none of `draft_token_ids`."""
    probe: ProbabilityProbe | None = None
    tokens_a_message: int | None = 1
    """Each message but the last brings so many tokens at least: who does not show text as it comes need not
    be woken for each. None: all tokens come in one message."""


class Prefill(msgspec.Struct, frozen=True, tag="prefill"):
    """Compute the prompt's keys and values and keep them where the next request finds them: in the prefix
    cache, and for the request's session. Answered by `Prefilled`."""


class Align(msgspec.Struct, frozen=True, tag="align"):
    """Find when each text token was spoken, by dynamic time warping over cross-attention. Answered by
    `TokensAligned`.

    The request's `prompt_token_ids` are prompt + text + end token; `text_start`/`text_end` delimit the text
    tokens; `num_frames` is the number of encoder positions that hold real audio.
    """

    text_start: int
    text_end: int
    num_frames: int


Pooling = Literal["cls", "last", "mean"]
"""Which hidden states of a prompt a vector is made of: the first token's, the last one's, the mean of all."""


class Pool(msgspec.Struct, frozen=True, tag="pool"):
    """Make one vector of the prompt's hidden states. Answered by `Pooled`."""

    pooling: Pooling
    is_normalized: bool = True
    """Its Euclidean length is 1."""
    num_dimensions: int | None = None
    """Keep the first so many dimensions, then normalize (Matryoshka embeddings); None: all."""


class Transduce(msgspec.Struct, frozen=True, tag="transduce"):
    """Turn input that arrives while the request runs into tokens that are final when they are given. Answered
    by one `Transduced` for each `InputChunk`. The request has no prompt, items or session."""

    lookahead: int = 0
    """Encoder frames of right context that a frame is computed with."""
    condition: int = 0
    """The model family's own choice, such as the language."""
    logprobs: bool = False
    """Report the log-probability of each token."""


PromptTask = Prefill | Align | Pool
"""What has one outcome, made of the prompt alone."""
Task = Sample | PromptTask | Transduce
"""What an engine can be asked to do: closed, so that everything that takes a task names all."""
TaskT = TypeVar("TaskT", bound=Task, covariant=True)


class KvSource(msgspec.Struct, frozen=True):
    """Another engine that has computed the keys and values of a prompt's first `num_tokens` tokens.

    What a place is called is the business of whoever moves the blocks between engines.
    """

    place: str
    num_tokens: int


class Request(msgspec.Struct, Generic[TaskT], frozen=True):
    """One task on a prompt whose `media` spans stand for encoded items, or that cross-attends to one item.

    With a `session` the request revises the session's previous one: it takes over what that computed as far
    as the prompt (and then the answer) is unchanged, and ends it if it is still running.
    """

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    task: TaskT
    encoder_hash: ContentHash | None = None
    """The item to cross-attend to (Whisper)."""
    encoder_span: tuple[int, int] | None = None
    """Of its positions those that are attended to, from the first to before the second; None: all."""
    media: tuple[MediaSpan, ...] = ()
    """Items in the prompt (audio-, vision-language models)."""
    session: SessionKey | None = None
    cache_salt: str = ""
    """Prompts share cached blocks only with prompts of the same salt."""
    lane: Lane = INTERACTIVE
    kv_from: KvSource | None = None
    """Where blocks of the prompt may be had; whatever does not come from there is computed."""


AnyRequest = Request[Task]
SampleRequest = Request[Sample]
PromptRequest = Request[PromptTask]
TransduceRequest = Request[Transduce]


class InputChunk(msgspec.Struct, frozen=True):
    """The next part of the input of a request whose task is `Transduce`.

    How many frames a chunk may have is the model family's business; several of its own chunks at once are
    one step, as when input is fed again.
    """

    features: Features
    num_valid: int
    """Frames of `features`, the first ones, that are input. What is behind them is padding and is masked."""
    is_last: bool = False
    """The input ends with it. Only then may there be padding, or no frame at all."""
    is_first: bool = False
    """The input begins with it. Needed after `StateEvicted` only: chunks are dropped until one says so."""


TopLogprobs = tuple[tuple[int, float], ...]
"""The likeliest tokens of one position, best first."""


class PromptLogprobs(msgspec.Struct, frozen=True):
    """For each prompt token but the first: its log-probability, the likeliest alternatives, and the place it
    has among all (1: the likeliest)."""

    logprobs: tuple[float, ...]
    top: tuple[TopLogprobs, ...]
    ranks: tuple[int, ...]


class TokensSampled(msgspec.Struct, frozen=True):
    """New tokens of one request, in order: accepted draft tokens, then one the model chose.

    If a stop token was chosen (or met inside the draft) `finish_reason` is "stop" and the stop token is not
    among `token_ids`; it is also "stop" when a grammar is complete, and "length" when `max_tokens` are
    generated. `error` is set when this request alone failed.
    """

    request_id: RequestId
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[TopLogprobs, ...] = ()
    prompt_logprobs: PromptLogprobs | None = None
    """With the first tokens only."""
    num_cached: int = 0
    """Prompt tokens whose KV was there already; with the first tokens only."""
    finish_reason: FinishReason | None = None
    num_draft_accepted: int = 0
    probe_probability: float | None = None
    error: str | None = None
    fault: Fault | None = None
    """With an `error`: of which kind it is."""
    stop_logprob: float | None = None
    """Of the stop token that ended the answer, where log-probabilities are wanted."""
    stop_token_id: int | None = None
    """The stop token that ended the answer."""
    stop_top_logprobs: TopLogprobs = ()
    """The likeliest tokens in the stop token's place, where those are wanted."""
    num_draft: int = 0
    """Tokens that were guessed in this step."""
    lifted: tuple[bool, ...] = ()
    """For each token whether it came only because of `SamplingParams.phrases`, where there are any."""


class Ending(msgspec.Struct, frozen=True):
    """Tokens that were sampled last and are no part of the text: a stop token, or those of a stop string.

    Log-probabilities are as many as tokens where those are wanted, else none.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[TopLogprobs, ...] = ()


NO_ENDING: Final = Ending()


class TextGenerated(TokensSampled, frozen=True):
    """What the detokenizer gives the session: joins of `text` equal the decode of all ids."""

    text: str = ""
    stop: str | None = None
    """The stop string that ended the answer."""
    ending: Ending = NO_ENDING
    """With the finish reason only."""

    @property
    def num_sampled(self) -> int:
        """Tokens that were made, those of the ending included."""
        return len(self.token_ids) + len(self.ending.token_ids)


class TokensAligned(msgspec.Struct, frozen=True, tag=True):
    """Start of each text token (and the end of the last) in encoder positions (20 ms each)."""

    request_id: RequestId
    boundaries: tuple[int, ...]
    """len = text_end - text_start + 1, never decreasing."""


class Prefilled(msgspec.Struct, frozen=True, tag=True):
    """A prompt's keys and values are computed."""

    request_id: RequestId
    num_cached: int = 0
    """Prompt tokens whose KV was there already."""


class Pooled(msgspec.Struct, frozen=True, tag=True):
    """The vector of one prompt."""

    request_id: RequestId
    values: bytes
    """float32, little-endian."""
    num_cached: int = 0
    """Prompt tokens whose KV was there already."""


class Transduced(msgspec.Struct, frozen=True, tag=True):
    """What one `InputChunk` brought: no token or several, none of which is ever taken back."""

    request_id: RequestId
    token_ids: tuple[int, ...] = ()
    frames: tuple[int, ...] = ()
    """Of each token the encoder frame that it was given at, counted from the beginning of the input. A fork's
    input begins where its parent's does."""
    logprobs: tuple[float, ...] = ()
    """Natural logarithms, one for each token where `Transduce.logprobs` wants them."""
    num_frames: int = 0
    """Encoder frames so far: no token of an earlier frame will follow."""
    finish_reason: FinishReason | None = None
    """It is "stop" with the answer to the last chunk."""
    ends: tuple[int, ...] = ()
    """Of each token the frame behind the last one that says it; none where tokens have a single frame."""


class StateEvicted(msgspec.Struct, frozen=True, tag=True):
    """A fed request has lost its state, and with it the chunks that were not run. It goes on once all of its
    input is fed again: that of a fork begins where its parent's does.

    The first chunk then has `is_first`. The tokens of before are given again, and are the same.
    """

    request_id: RequestId


TransduceEvent = Transduced | StateEvicted
"""The events of a fed request, besides `TaskFailed`, which ends it."""


class TaskFailed(msgspec.Struct, frozen=True, tag=True):
    """A request that does not sample failed alone."""

    request_id: RequestId
    error: str
    fault: Fault = "defect"


Outcome = TokensAligned | Prefilled | Pooled | TaskFailed
"""The one answer to a request that does not sample."""
