"""One request of several answers on an engine: prompt in, pieces of text out, and nothing left behind.

What completions, chat and `LocalEngine` share. Knows no wire format; read `actors/http/chat/completions.py`
and `actors/http/chat/routes.py` for those, `actors/inference/client.py` for what an engine does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

import msgspec
import trio

from ...engine.models.prompts import Prompt
from ...protocols.engine.messages import (
    INTERACTIVE,
    NO_ENDING,
    Ending,
    Lane,
    NgramDraft,
    PromptLogprobs,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    SessionKey,
    TextGenerated,
    TopLogprobs,
)
from ...protocols.shared.speculative import ngram_draft
from ..inference.client import EngineClient, Place, check_answer, whole_answer
from ..runtime.nursery import open_work
from .prompts import Prompter

_FORGOTTEN_AT_ONCE: Final = 512
"""Tokens with their alternatives."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """A model that answers prompts, under its public name."""

    name: str
    engine: EngineClient
    prompter: Prompter
    num_ngram_drafts: int = 0
    """Tokens proposed a step by looking up in prompt and answer what followed the newest ones before."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """What a request's answers are guessed from; none of it changes a token."""

    predicted: tuple[int, ...] = ()
    """An older version of the answer."""
    ngram: NgramDraft | None = None


@dataclass(slots=True)
class Answer:
    """One answer so far."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[TopLogprobs] = field(default_factory=list)
    prompt_logprobs: PromptLogprobs | None = None
    num_cached: int = 0
    num_draft_accepted: int = 0
    finish_reason: str | None = None
    stop: str | None = None
    stop_token_id: int | None = None
    ending: Ending = NO_ENDING
    _texts: list[str] = field(default_factory=list)

    def add(self, piece: TextGenerated, *, keeps_logprobs: bool = True) -> None:
        """Append what was generated."""
        self._texts.append(piece.text)
        self.token_ids += piece.token_ids
        if keeps_logprobs:
            self.logprobs += piece.logprobs
            self.top_logprobs += piece.top_logprobs
        self.prompt_logprobs = self.prompt_logprobs or piece.prompt_logprobs
        self.num_cached = max(self.num_cached, piece.num_cached)
        self.num_draft_accepted += piece.num_draft_accepted
        self.stop = self.stop or piece.stop
        if piece.finish_reason is not None:
            self.finish_reason, self.stop_token_id = piece.finish_reason, piece.stop_token_id
            self.ending = piece.ending
            self.text = "".join(self._texts)

    @property
    def num_sampled(self) -> int:
        """Tokens that were made, those of the ending included."""
        return len(self.token_ids) + len(self.ending.token_ids)

    def forget(self) -> None:
        """Free what was answered piece by piece: all at once, everybody else would wait."""
        while self.top_logprobs:
            del self.top_logprobs[-_FORGOTTEN_AT_ONCE:]

    async def let_go(self) -> None:
        """`forget` on the loop: a millisecond at a time."""
        while self.top_logprobs:
            del self.top_logprobs[-_FORGOTTEN_AT_ONCE:]
            await trio.lowlevel.checkpoint()


OnPiece = Callable[[int, TextGenerated], None]
"""Gets each piece of an answer (its index, the piece) as it comes, the last with its finish reason."""
OnAccepted = Callable[[int], None]
"""Told when an answer is in the engine's queue."""


async def answer_all(
    model: TextModel,
    prompt: Prompt,
    choices: Sequence[SamplingParams],
    *,
    lane: Lane = INTERACTIVE,
    cache_salt: str = "",
    drafting: Drafting | None = None,
    on_accepted: OnAccepted | None = None,
    on_piece: OnPiece | None = None,
) -> list[Answer]:
    """Answer `prompt` once for each of `choices`; answers in order, without log-probabilities if `on_piece`
    has had them already.

    The second choice starts when the first has its first token: from then on the prompt is in the prefix
    cache. Raises the engine's errors, and what `check_answer` does if one answer failed alone; cancelling,
    or any failure, aborts all of them.
    """
    answers = [Answer() for _ in choices]
    request_id = secrets.token_hex(12)
    first_token = trio.Event()

    async def answer(place: Place, index: int) -> None:
        generate = make_request(
            f"{request_id}-{index}", model, prompt, choices[index], lane, cache_salt, drafting=drafting
        )
        async with place.run(generate) as run:
            if on_accepted is not None:
                on_accepted(index)
            async for piece in run:
                check_answer(piece)
                answers[index].add(piece, keeps_logprobs=on_piece is None)
                if on_piece is not None:
                    on_piece(index, piece)
                first_token.set()

    try:
        async with placed(model, prompt, lane) as place, open_work() as nursery:
            nursery.start_soon(answer, place, 0)
            if len(choices) > 1:
                await first_token.wait()
            for index in range(1, len(choices)):
                nursery.start_soon(answer, place, index)
    except BaseException:  # a client that leaves must cost the others no more than one that stays
        with trio.CancelScope(shield=True):
            for each in answers:
                await each.let_go()
        raise
    return answers


async def answer_one(
    model: TextModel,
    prompt: Prompt,
    params: SamplingParams,
    *,
    lane: Lane = INTERACTIVE,
    cache_salt: str = "",
) -> Answer:
    """Answer `prompt` once, without looking at pieces: the engine wakes nobody for each token."""
    generate = make_request(secrets.token_hex(12), model, prompt, params, lane, cache_salt)
    answer = Answer()
    async with placed(model, prompt, lane) as place:
        piece = await whole_answer(place, generate)
    check_answer(piece)
    answer.add(piece)
    return answer


def placed(model: TextModel, prompt: Prompt, lane: Lane) -> AbstractAsyncContextManager[Place]:
    """Where a prompt that belongs to no session runs."""
    return model.engine.placed(prompt.items, prompt_token_ids=prompt.token_ids, spans=prompt.spans, lane=lane)


def make_request(
    name: str,
    model: TextModel,
    prompt: Prompt,
    params: SamplingParams,
    lane: Lane,
    cache_salt: str,
    *,
    session: SessionKey | None = None,
    drafting: Drafting | None = None,
) -> SampleRequest:
    """One answer to `prompt`, as an engine is asked for it; the model's own drafts if none are given."""
    drafting = drafting or Drafting(ngram=ngram_draft(None, model.num_ngram_drafts))
    return Request(
        RequestId(name),
        prompt.token_ids,
        Sample(
            with_ends(model, params),
            draft_token_ids=drafting.predicted,
            rejoins_draft=bool(drafting.predicted),
            ngram=drafting.ngram,
        ),
        media=prompt.spans,
        session=session,
        cache_salt=cache_salt,
        lane=lane,
    )


def with_ends(model: TextModel, params: SamplingParams) -> SamplingParams:
    """`params` with the model's own end tokens, which `ignore_eos` leaves out.

    A grammar needs them even then: without, an answer that is complete could not end.
    """
    ends = model.prompter.builder.info.stop_token_ids
    if params.ignore_eos and params.grammar is None:
        ends = ()
    merged = tuple(dict.fromkeys((*params.stop_token_ids, *ends)))
    # To the engine the flag means: deaf to every stop token, those of the request as well.
    return msgspec.structs.replace(params, stop_token_ids=merged, ignore_eos=not merged)
