"""An engine of one model inside this process, on the trio side: what `LocalEngine`'s shells drive.

Every method runs in the loop that `run` runs in. Read next: `actors/local/engine.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, get_args

import trio

from ...engine.memory_limits import naming_shortage
from ...engine.models.prompts import Prompt as EnginePrompt
from ...protocols.embeddings.embeddings import checked_input
from ...protocols.engine.messages import Lane, SamplingParams, TextGenerated
from ...protocols.errors import BadRequestError, UnavailableError, wrong
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.shared.generation import fitted
from ...protocols.shared.json_body import refuse
from ...protocols.transcription.rest import render_transcript
from ...protocols.transcription.transcript import TimedSegment, Transcript, TranscriptionOptions, with_words
from ..runtime.nursery import open_work
from ..runtime.off_loop import off_loop
from ..runtime.supervisor import RunActor
from ..service_class import lane_of
from ..speech.model import SpeechModel
from ..text.embedding import NO_EMBEDDING, EmbeddingModel, embed_all
from ..text.generation import Answer, TextModel, answer_all, answer_one
from .options import Completion, Delta, ParsedPrompt, Prompt, SamplingOptions, check_template, read_prompt
from .speech import Document, Recording, read_recording, read_request_options

_PER_RUNNING: Final = 2
"""Prompts in flight for each that can run at once: enough that the next are ready, few enough to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLocal:
    """A model, what runs its engine, and what it can do: one of the last three at least."""

    name: str
    run: RunActor
    text: TextModel | None
    speech: SpeechModel | None
    embeds: EmbeddingModel | None = None


class LocalCore:
    """Answers prompts and transcribes. Start `run` first; it calls `load`."""

    def __init__(self, load: Callable[[], LoadedLocal], *, max_running: int) -> None:
        self._load = load
        self._loaded: LoadedLocal | None = None
        self._max_in_flight = _PER_RUNNING * max_running

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises ModelLoadError before it is started."""
        with naming_shortage("the model"):
            loaded = await trio.to_thread.run_sync(self._load)
        async with trio.open_nursery() as nursery:
            try:
                with naming_shortage(loaded.name):
                    await nursery.start(loaded.run)
                self._loaded = loaded
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._loaded = None

    @property
    def loaded(self) -> LoadedLocal:
        """The model and all about it. Raises UnavailableError when it is not running."""
        if self._loaded is None:
            raise UnavailableError("the engine is closed")
        return self._loaded

    @property
    def model(self) -> TextModel:
        """What answers prompts. Raises BadRequestError where the model cannot."""
        loaded = self.loaded
        if loaded.text is None:
            way = "transcribe" if loaded.embeds is None else "embed"
            raise BadRequestError(f"The model `{loaded.name}` takes no prompts; `{way}` with it.")
        return loaded.text

    async def embed(self, texts: Sequence[str | Sequence[int]], dimensions: int | None) -> list[bytes]:
        """The vectors of texts or token ids, float32. Raises BadRequestError naming the text at fault."""
        loaded = self.loaded
        if loaded.embeds is None:
            raise BadRequestError(f"The model `{loaded.name}` does not embed. {NO_EMBEDDING}.")
        inputs = [
            (f"texts[{place}]", checked_input(f"texts[{place}]", each)) for place, each in enumerate(texts)
        ]
        lane = lane_of(num_answers=len(inputs))
        return (await embed_all(loaded.embeds, inputs, dimensions=dimensions, lane=lane)).vectors

    async def transcribe(
        self,
        recording: Recording,
        options: Mapping[str, object],
        on_segment: Callable[[TimedSegment], None] | None = None,
    ) -> Transcript:
        """A recording's transcript, by the recipe of the server; `on_segment` gets its segments early."""
        return with_words(
            await self._transcribed(recording, read_request_options(options).options, on_segment)
        )

    async def document(
        self, recording: Recording, options: Mapping[str, object], response_format: Document
    ) -> str:
        """A recording's transcript as a text of that format."""
        if response_format not in get_args(Document):
            raise refuse("response_format", response_format, ", ".join(get_args(Document)))
        parsed = read_request_options(options, response_format)
        transcript = await self._transcribed(recording, parsed.options)
        _, body = await off_loop(partial(render_transcript, transcript, parsed), size=len(transcript.text))
        return body.decode()

    async def _transcribed(
        self,
        recording: Recording,
        parsed: TranscriptionOptions,
        on_segment: Callable[[TimedSegment], None] | None = None,
    ) -> Transcript:
        loaded = self.loaded
        if loaded.speech is None:
            raise BadRequestError(f"The model `{loaded.name}` does not transcribe.")
        loaded.speech.check(parsed)
        if on_segment is not None and parsed.multichannel:
            raise wrong("multichannel", "is not for segments as they come")
        samples = await read_recording(
            recording, are_channels_kept=parsed.multichannel, track=parsed.audio_track
        )
        lane = lane_of(audio_s=samples.size / INTERNAL_RATE)
        return await loaded.speech.transcribe(samples, parsed, lane=lane, on_segment=on_segment)

    async def complete_all(
        self,
        prompts: Sequence[Prompt],
        options: Sequence[SamplingOptions],
        template_kwargs: dict[str, object],
    ) -> list[Completion]:
        """Completions in order; no more than some at a time are in the engine. The first failure is raised,
        and ends the others."""
        results: list[Completion | None] = [None] * len(prompts)
        places = iter(range(len(prompts)))

        async def work() -> None:
            for place in places:  # shared by all workers
                lane = lane_of(priority=options[place].priority or 0, num_answers=len(prompts))
                results[place] = await self._complete(prompts[place], options[place], lane, template_kwargs)

        async with open_work() as nursery:
            for _ in range(min(self._max_in_flight, len(prompts))):
                nursery.start_soon(work)
        return [result for result in results if result is not None]

    async def stream(
        self,
        prompt: Prompt,
        options: SamplingOptions,
        template_kwargs: dict[str, object],
        put: Callable[[Delta], None],
    ) -> None:
        """Give `put` each piece as it comes. Returns at the end; cancelling aborts."""
        model = self.model

        def on_piece(_: int, piece: TextGenerated) -> None:
            put(Delta(piece.text, piece.token_ids + piece.ending.token_ids, piece.finish_reason))

        async with self._build(prompt, options, template_kwargs) as (built, params):
            await answer_all(
                model,
                built,
                [params],
                lane=lane_of(priority=options.priority or 0),
                cache_salt=options.cache_salt or "",
                on_piece=on_piece,
            )

    async def _complete(
        self, prompt: Prompt, options: SamplingOptions, lane: Lane, template_kwargs: dict[str, object]
    ) -> Completion:
        model = self.model
        async with self._build(prompt, options, template_kwargs) as (built, params):
            answer = await answer_one(model, built, params, lane=lane, cache_salt=options.cache_salt or "")
        return _completion(built, answer, has_logprobs=params.logprobs is not None)

    @asynccontextmanager
    async def _build(
        self, prompt: Prompt, options: SamplingOptions, template_kwargs: dict[str, object]
    ) -> AsyncIterator[tuple[EnginePrompt, SamplingParams]]:
        prompter = self.model.prompter
        info = prompter.builder.info
        params = options.params(info.vocab_size, info.sampling)
        params = await prompter.without(params, options.forbidden)
        check_template(template_kwargs)
        parsed_prompt: ParsedPrompt = (
            read_prompt(prompt)
            if isinstance(prompt, str)
            else await trio.to_thread.run_sync(partial(read_prompt, prompt, **template_kwargs))
        )
        if parsed_prompt.conversation is not None:
            async with prompter.chat(parsed_prompt.conversation, parsed_prompt.sources) as built:
                yield built, fitted(params, prompter.builder.num_room(built))
            return
        assert parsed_prompt.raw is not None, "a prompt is one or the other"
        built = await prompter.completion(parsed_prompt.raw)
        yield built, fitted(params, prompter.builder.num_room(built))


def _completion(prompt: EnginePrompt, answer: Answer, *, has_logprobs: bool) -> Completion:
    ending = answer.ending
    return Completion(
        text=answer.text,
        token_ids=(*answer.token_ids, *ending.token_ids),
        finish_reason=answer.finish_reason or "stop",
        num_prompt_tokens=len(prompt.token_ids),
        num_cached_tokens=answer.num_cached,
        logprobs=(*answer.logprobs, *ending.logprobs) if has_logprobs else None,
        top_logprobs=(*answer.top_logprobs, *ending.top_logprobs) if has_logprobs else None,
        prompt_logprobs=answer.prompt_logprobs,
        stop=answer.stop,
    )
