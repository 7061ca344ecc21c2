"""A model inside this process: `LocalEngine` for plain Python, `AsyncLocalEngine` for asyncio and trio.

The same engine a server runs, without sockets: many prompts are batched, prefixes shared, images and audio
encoded once. Under trio the engine runs in the caller's own loop; for plain Python and asyncio in the loop of
a thread. What is asked and answered is in `actors/local/options.py`, the trio side in `actors/local/core.py`,
the ways to it in `actors/local/shells.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Never, Self, Unpack, overload

import numpy as np
import numpy.typing as npt
import sniffio

from ...media.speech.voice_activity import VoiceActivityModel
from ...protocols.errors import BadRequestError, UnavailableError
from ...protocols.transcription.transcript import TimedSegment, Transcript
from ..config.server import Dtype, EngineConfig, KvDtype, Quantization
from ..inference.engine import Engine
from ..media_decoding.memory_budget import MediaBudget
from ..model_loading import load_model
from ..served_model import LoadedModel
from ..text.generation import TextModel
from ..text.media_opener import ThreadOpener
from ..text.media_opening import MediaLimits
from ..text.prompts import Prompter
from .core import LoadedLocal, LocalCore
from .options import NO_PROMPT, Completion, Delta, Message, Prompt, SamplingOptions
from .shells import CLOSED, ENTERED, AsyncioShell, Pieces, Threaded, TrioShell, drain, wait
from .speech import Document, Recording, TranscribeOptions

Sampling = SamplingOptions | Sequence[SamplingOptions] | None
"""For all prompts, or one for each; None: greedy."""
Vectors = npt.NDArray[np.float32]

_DEFAULT_RUNNING: Final = 64


class _LocalModel:
    """A model and how it is to run, as both engines are told."""

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "auto",
        dtype: Dtype = "auto",
        quantization: Quantization = "none",
        kv_dtype: KvDtype = "auto",
        kv_memory: str = "auto",
        max_context: int = 0,
        max_running: int = 0,
        num_threads: int = 0,
        kernels: str = "auto",
        **unknown: Never,
    ) -> None:
        for name in unknown:
            known = ", ".join(_LocalModel.__init__.__kwdefaults__ or ())
            raise TypeError(f"{type(self).__name__} has no option {name!r}; there are: {known}")
        self._config = EngineConfig(
            device=device,
            dtype=dtype,
            quantization=quantization,
            kv_dtype=kv_dtype,
            kv_memory=kv_memory,
            max_context=max_context,
            max_running=max_running,
            num_threads=num_threads,
            kernels=kernels,
        )
        self._model = model

    def _core(self) -> LocalCore:
        """A core of the model; nothing is read yet."""
        name, config = str(self._model), self._config

        def load() -> LoadedLocal:
            loaded = self._load()
            text = None
            if loaded.prompts is not None:
                budget, limits = MediaBudget(wait_s=math.inf), MediaLimits(takes_embeds=True)
                prompter = Prompter(loaded.prompts, ThreadOpener(), budget=budget, limits=limits)
                text = TextModel(name, loaded.engine, prompter)
            return LoadedLocal(
                name=name, run=loaded.engine.run, text=text, speech=loaded.speech, embeds=loaded.embeds
            )

        return LocalCore(load, max_running=config.max_running or _DEFAULT_RUNNING)

    def _load(self) -> LoadedModel[Engine]:
        """The model, not running yet. Blocking."""
        name = str(self._model)
        return load_model(name, name, self._config, VoiceActivityModel())


class LocalEngine(_LocalModel):
    """A model for plain Python.

    `model` is an embedded name, a folder or a Hugging Face id. `quantization` rounds its weights (`"int8"`,
    `"int4"`), `kv_dtype` keys and values (`"int8"`). `kv_memory` is the memory for these (`"0.5"`: half of
    what is free, `"2GiB"`), `max_context` the longest prompt with its answer, `max_running` how many run at
    once; all are chosen as a server does unless given. Use it in a `with` statement: entering loads the model
    and raises ModelLoadError.

    Methods raise `sensorium.protocols.errors`; safe to use from several threads.
    """

    _threaded: Threaded | None = None

    def __enter__(self) -> Self:
        if self._threaded is not None:
            raise RuntimeError(ENTERED)
        self._threaded = Threaded(self._core())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop. Requests of other threads end with UnavailableError."""
        threaded, self._threaded = self._threaded, None
        if threaded is not None:
            threaded.close()

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling: Sampling = None, **template_kwargs: object
    ) -> list[Completion]:
        """Completions of one or many prompts, in order; any number is taken, some at a time are in hand.

        The first prompt that cannot be served raises its error and ends the others.
        """
        listed = as_prompts(prompts)
        threaded = self._running
        return wait(
            threaded.start(threaded.core.complete_all, listed, spread(sampling, listed), template_kwargs)
        )

    def chat(
        self,
        messages: str | Sequence[Message],
        sampling: SamplingOptions | None = None,
        **template_kwargs: object,
    ) -> Completion:
        """The answer to a conversation, or to a question; more keywords go to the chat template
        (`enable_thinking=False`)."""
        return self.generate([_conversation(messages)], sampling, **template_kwargs)[0]

    def stream(
        self, prompt: Prompt, sampling: SamplingOptions | None = None, **template_kwargs: object
    ) -> Iterator[Delta]:
        """One answer as it comes. Leaving the loop (or dropping the iterator) aborts it."""
        threaded, options = self._running, sampling or SamplingOptions()
        return drain(threaded, partial(threaded.core.stream, prompt, options, template_kwargs))

    def embed(self, texts: str | Sequence[str | Sequence[int]], *, dimensions: int | None = None) -> Vectors:
        """The vectors of one or many texts, or of lists of token ids: float32 [texts, size], or [texts,
        dimensions] where the first dimensions are asked for.

        They are pooled and normalized as the checkpoint's folder says. Raises BadRequestError naming the text
        at fault, and where the model does not embed.
        """
        threaded = self._running
        return vectors_of(wait(threaded.start(threaded.core.embed, as_texts(texts), dimensions)))

    @overload
    def transcribe(self, recording: Recording, **options: Unpack[TranscribeOptions]) -> Transcript: ...

    @overload
    def transcribe(
        self, recording: Recording, *, response_format: Document, **options: Unpack[TranscribeOptions]
    ) -> str: ...

    def transcribe(
        self,
        recording: Recording,
        *,
        response_format: Document | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> Transcript | str:
        """The transcript of a recording of any length, as a server gives it for the same file.

        `recording` is a path, the bytes of a file in any format, a binary file object, or (samples, rate):
        float [n] or [n, channels], full scale 1, or int16; an array alone is at 16 kHz. The options are the
        form fields of `/v1/audio/transcriptions`; `task` may be `translate`. Segments are filled, or what
        `timestamp_granularities` names; with a `response_format` (`text`, `srt`, `vtt`, `tsv`) it is the
        document. Raises BadRequestError naming an option, MediaError, or OSError for a path.
        """
        threaded = self._running
        if response_format is not None:
            return wait(threaded.start(threaded.core.document, recording, options, response_format))
        return wait(threaded.start(threaded.core.transcribe, recording, options))

    def segments(self, recording: Recording, **options: Unpack[TranscribeOptions]) -> Iterator[TimedSegment]:
        """The segments of `transcribe`, each as soon as it is sure, while later ones are still being made;
        with `words` if `timestamp_granularities` names them. Leaving the loop ends the work.

        The options are those of `transcribe`, but for `multichannel`.
        """
        threaded = self._running
        return drain(threaded, partial(threaded.core.transcribe, recording, options))

    @property
    def _running(self) -> Threaded:
        if self._threaded is None:
            raise UnavailableError(CLOSED)
        return self._threaded


class AsyncLocalEngine(_LocalModel):
    """The same for asyncio and trio, in an `async with` statement. Cancelling a call aborts its work."""

    _shell: TrioShell | AsyncioShell | None = None
    _entered: TrioShell | AsyncioShell | None = None
    """The shell from its opening until the statement is left, also where it was closed before."""

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise RuntimeError(ENTERED)
        core = self._core()
        shell = TrioShell(core) if sniffio.current_async_library() == "trio" else AsyncioShell(core)
        self._entered = shell
        try:
            await shell.open()
        except BaseException:
            self._entered = None
            raise
        self._shell = shell
        return self

    async def __aexit__(self, *_: object) -> None:
        entered, self._shell, self._entered = self._entered, None, None
        if entered is not None:
            await entered.leave()

    async def aclose(self) -> None:
        """Stop, from any task. What is running ends with UnavailableError."""
        shell, self._shell = self._shell, None
        if shell is not None:
            await shell.close()

    async def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling: Sampling = None, **template_kwargs: object
    ) -> list[Completion]:
        """See `LocalEngine.generate`."""
        listed, shell = as_prompts(prompts), self._running
        return await shell.call(shell.core.complete_all, listed, spread(sampling, listed), template_kwargs)

    async def chat(
        self,
        messages: str | Sequence[Message],
        sampling: SamplingOptions | None = None,
        **template_kwargs: object,
    ) -> Completion:
        """See `LocalEngine.chat`."""
        return (await self.generate([_conversation(messages)], sampling, **template_kwargs))[0]

    def stream(
        self, prompt: Prompt, sampling: SamplingOptions | None = None, **template_kwargs: object
    ) -> Pieces[Delta]:
        """One answer as it comes: `async for delta in engine.stream(…)`. Dropping it aborts the request."""
        shell, options = self._running, sampling or SamplingOptions()
        return shell.stream(partial(shell.core.stream, prompt, options, template_kwargs))

    async def embed(
        self, texts: str | Sequence[str | Sequence[int]], *, dimensions: int | None = None
    ) -> Vectors:
        """See `LocalEngine.embed`."""
        shell = self._running
        return vectors_of(await shell.call(shell.core.embed, as_texts(texts), dimensions))

    @overload
    async def transcribe(self, recording: Recording, **options: Unpack[TranscribeOptions]) -> Transcript: ...

    @overload
    async def transcribe(
        self, recording: Recording, *, response_format: Document, **options: Unpack[TranscribeOptions]
    ) -> str: ...

    async def transcribe(
        self,
        recording: Recording,
        *,
        response_format: Document | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> Transcript | str:
        """See `LocalEngine.transcribe`."""
        shell = self._running
        if response_format is not None:
            return await shell.call(shell.core.document, recording, options, response_format)
        return await shell.call(shell.core.transcribe, recording, options)

    def segments(self, recording: Recording, **options: Unpack[TranscribeOptions]) -> Pieces[TimedSegment]:
        """See `LocalEngine.segments`; `async for`, as `stream`."""
        shell = self._running
        return shell.stream(partial(shell.core.transcribe, recording, options))

    @property
    def _running(self) -> TrioShell | AsyncioShell:
        if self._shell is None:
            raise UnavailableError(CLOSED.replace("with", "async with").replace("Local", "AsyncLocal"))
        return self._shell


def as_texts(texts: str | Sequence[str | Sequence[int]]) -> list[str | Sequence[int]]:
    """A list of texts or lists of token ids; one text is a list of itself."""
    return [texts] if isinstance(texts, str) else list(texts)


def vectors_of(found: Sequence[bytes]) -> Vectors:
    """The rows of an array."""
    return np.frombuffer(b"".join(found), dtype="<f4").reshape(len(found), -1 if found else 0)


def _conversation(messages: str | Sequence[Message]) -> Prompt:
    """A question is a user's message: a text alone would be a prompt without the chat template."""
    return {"messages": [{"role": "user", "content": messages}]} if isinstance(messages, str) else messages


def as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """A list of prompts; one prompt (a text, token ids, a conversation, a mapping) is a list of itself."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    given: object = prompts
    if not isinstance(given, Iterable):
        raise BadRequestError(NO_PROMPT, param="prompt")
    listed: list[Any] = list(given)
    first = listed[0] if listed else None
    if isinstance(first, int | np.integer) or (isinstance(first, Mapping) and "role" in first):
        return [listed]
    return listed


def spread(sampling: Sampling, prompts: Sequence[Prompt]) -> list[SamplingOptions]:
    """One set of options for each prompt. Raises BadRequestError if their numbers differ."""
    if sampling is None or isinstance(sampling, SamplingOptions):
        return [sampling or SamplingOptions()] * len(prompts)
    if isinstance(sampling, Mapping) or not all(isinstance(each, SamplingOptions) for each in sampling):
        raise BadRequestError("sampling is SamplingOptions(…), or a list of them", param="sampling")
    if len(sampling) != len(prompts):
        raise BadRequestError(
            f"{len(sampling)} sampling options for {len(prompts)} prompts.", param="sampling"
        )
    return list(sampling)
