"""Runs a request with phrases: where one was begun in vain, the answer is found again from there without it.

What may still be taken back is not given out. The rules are `engine/text/keyword_boosting.py`'s; knows the
engine by one function, as `actors/inference/beam_search.py` does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager as Opened
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Protocol

import msgspec
import trio

from ...engine.text.detokenizer import Detokenizer
from ...engine.text.keyword_boosting import PhraseTree, PhraseWatch
from ...protocols.engine.messages import (
    RequestId,
    SampleRequest,
    SamplingParams,
    TextGenerated,
    TokensSampled,
    TopLogprobs,
)
from ...protocols.errors import BadRequestError
from .detokenizer import TextReader, TextStream
from .scheduler import Part

MAX_RETURNS: Final = 16
"""Behind so many in an answer nothing is likelier any more."""


class Submit(Protocol):
    """Queues a request; leaving ends it."""

    def __call__(self, request: SampleRequest, /, *, part: Part | None) -> Opened[TextStream]: ...


class PhraseStream(TextReader):
    """The text of a request as it becomes certain: as of a `TextStream`, whose errors it raises."""

    def __init__(
        self, request: SampleRequest, submit: Submit, tree: PhraseTree, detokenizer: Detokenizer
    ) -> None:
        self._request = request
        self._submit = submit
        self._tree = tree
        self._detokenizer = detokenizer
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._tops: list[TopLogprobs] = []
        self._num_given = 0
        self._num_returns = 0
        self._start = 0
        """Tokens of the answer that stand in the prompt of what is asked now."""
        self._watch: PhraseWatch | None = None
        self._submitted = AsyncExitStack()
        self._stream: TextStream | None = None
        self._first: TextGenerated | None = None
        """It alone says what is said once."""

    async def receive(self) -> TextGenerated:
        """The next text; raises `trio.EndOfChannel` behind the last."""
        while not self.is_finished:
            assert self._stream is not None, "it is asked for"
            part = await self._stream.receive()
            back_to = self._take(part)
            if back_to is not None:
                while part.finish_reason is None and self._stream.is_finished:
                    part = await self._stream.receive()  # nothing is asked for those that were ended
            if back_to is not None and part.finish_reason not in ("abort", "error"):
                await self._go_back(back_to)
                continue
            self.is_finished = part.finish_reason is not None
            num_sure = self._num_sure()
            stride = self._request.task.tokens_a_message
            if self.is_finished or (stride is not None and num_sure - self._num_given >= stride):
                return self._given(part, num_sure)
        raise trio.EndOfChannel

    async def start(self, request: SampleRequest) -> None:
        """Ask for the answer, or for what comes next in it, instead of what was asked so far."""
        await self.aclose()
        is_watched = request.task.sampling.phrases is not None
        self._watch = PhraseWatch(self._tree, request.prompt_token_ids) if is_watched else None
        submitted = self._submit(request, part="later" if self._num_returns else None)
        self._stream = await self._submitted.enter_async_context(submitted)

    async def aclose(self) -> None:
        """End what is asked."""
        await self._submitted.aclose()

    def _take(self, part: TextGenerated) -> int | None:
        """Note what came; the token of the answer to go back to, if there is one."""
        self._first = self._first or part
        self._tokens += part.token_ids
        self._logprobs += part.logprobs
        self._tops += part.top_logprobs
        watch = self._watch
        if watch is None:
            return None
        for token_id, is_lifted in zip(part.token_ids, part.lifted, strict=True):
            watch.push(token_id, is_lifted=is_lifted)
            if watch.back_to is not None:
                break
        else:
            if part.finish_reason == "stop":
                watch.end()
        return None if watch.back_to is None else self._start + watch.back_to

    def _num_sure(self) -> int:
        """How much of the answer stays."""
        if self.is_finished or self._watch is None:
            return len(self._tokens)
        return self._start + self._watch.num_sure

    async def _go_back(self, start: int) -> None:
        """Find the answer again from its token `start` on, which no phrase makes likelier now."""
        for values in (self._tokens, self._logprobs, self._tops):
            del values[start:]
        if self._stream is not None:
            self._stream.is_enough = True
        self._num_returns += 1
        self._start = start
        request, task = self._request, self._request.task
        sampling, draft = task.sampling, task.draft_token_ids
        await self.start(
            msgspec.structs.replace(
                request,
                request_id=RequestId(f"{request.request_id}/{self._num_returns}"),
                prompt_token_ids=request.prompt_token_ids + tuple(self._tokens),
                task=msgspec.structs.replace(
                    task,
                    draft_token_ids=draft[start:] if draft[:start] == tuple(self._tokens) else (),
                    probe=None,
                    sampling=msgspec.structs.replace(
                        sampling,
                        max_tokens=sampling.max_tokens - start,
                        min_tokens=max(0, sampling.min_tokens - start),
                        begin_suppress_token_ids=() if start else sampling.begin_suppress_token_ids,
                        phrases=sampling.phrases if self._num_returns < MAX_RETURNS else None,
                        phrases_from=1,
                    ),
                ),
            )
        )

    def _given(self, part: TextGenerated, num_sure: int) -> TextGenerated:
        """What was not given yet, with what `part` says besides."""
        assert self._first is not None, "something came"
        is_first, fresh = self._num_given == 0, slice(self._num_given, num_sure)
        self._num_given = num_sure
        return self._detokenizer.push(
            TokensSampled(
                self._request.request_id,
                tuple(self._tokens[fresh]),
                logprobs=tuple(self._logprobs[fresh]),
                top_logprobs=tuple(self._tops[fresh]),
                prompt_logprobs=self._first.prompt_logprobs if is_first else None,
                num_cached=self._first.num_cached if is_first else 0,
                finish_reason=part.finish_reason,
                probe_probability=self._first.probe_probability if is_first else None,
                error=part.error,
                fault=part.fault,
                stop_logprob=part.stop_logprob,
                stop_token_id=part.stop_token_id,
                stop_top_logprobs=part.stop_top_logprobs,
            )
        )


def check_phrased(sampling: SamplingParams) -> None:
    """Raise BadRequestError if a request with phrases asks for what they do not go with."""
    others = {
        "stop strings": bool(sampling.stop),
        "a grammar": sampling.grammar is not None,
        "penalties of the answer": bool(sampling.presence_penalty or sampling.frequency_penalty),
    }
    for name, is_used in others.items():
        if is_used:
            raise BadRequestError(f"keyword boosting cannot be combined with {name}", param="phrases")


@asynccontextmanager
async def expecting(
    request: SampleRequest, submit: Submit, tree: PhraseTree, detokenizer: Detokenizer
) -> AsyncIterator[PhraseStream]:
    """The stream of a request with phrases. Leaving ends what is asked."""
    stream = PhraseStream(request, submit, tree, detokenizer)
    try:
        await stream.start(request)
        yield stream
    finally:
        await stream.aclose()
