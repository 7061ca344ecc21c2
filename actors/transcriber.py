"""Audio of any length → transcript: cut into windows, language found once, windows decoded side by side.

`transcribe_windows` is the whole recipe; files and live turns differ only in where the windows' features
come from (`WindowSource`) and in what is remembered between calls (`WindowMemory`), so a live turn's final
transcript is the offline one by construction. One window: `actors/windows.py`. Live:
`actors/live_transcriber.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import trio

from ..media.segments import split
from ..protocols.messages import EncoderItem
from ..protocols.transcript import Segment, TokenLogProb, Transcript, TranscriptionOptions, Word
from .nursery import open_work
from .windows import (
    FILE_PRIORITY,
    SILENCE,
    Detection,
    Samples,
    WindowAnswer,
    WindowDecoder,
    is_silent,
)

Range = tuple[int, int]
"""Start and end of a window in samples."""

UNSPACED_LANGUAGES: Final = frozenset({"zh", "ja", "th", "lo", "my", "yue", "km", "bo"})
"""Written without spaces between words: the texts of windows are joined as they are."""
_WINDOWS_AT_ONCE: Final = 8
"""Windows of one file in hand at once: enough to fill the engine's batches, few enough to share it."""


class WindowSource(Protocol):
    """Where windows come from: a file in memory, or a turn that is still being spoken."""

    def is_silent(self, window: Range) -> bool:
        """Whether the window holds no sound at all."""
        ...

    async def item(self, window: Range) -> EncoderItem:
        """The window's features and their hash."""
        ...


@dataclass(slots=True)
class WindowMemory:
    """What is already known about windows by their exact range; anything forgotten is computed again."""

    detections: dict[Range, Detection] = field(default_factory=dict)
    answers: dict[tuple[Range, str | None], WindowAnswer] = field(default_factory=dict)
    words: dict[tuple[Range, str | None], tuple[Word, ...]] = field(default_factory=dict)
    drafts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Last answer for the window that starts at a sample: the guess to verify when it has grown."""

    def keep_only(self, windows: list[Range]) -> None:
        """Forget every window that is not in `windows`, and drafts that start nowhere."""
        kept, starts = set(windows), {start for start, _ in windows}
        self.detections = {key: value for key, value in self.detections.items() if key in kept}
        self.answers = {key: value for key, value in self.answers.items() if key[0] in kept}
        self.words = {key: value for key, value in self.words.items() if key[0] in kept}
        self.drafts = {key: value for key, value in self.drafts.items() if key in starts}


class FileSource:
    """Windows of samples that are all there. Features are computed in a thread."""

    def __init__(self, decoder: WindowDecoder, samples: Samples) -> None:
        self._decoder = decoder
        self._samples = samples

    def is_silent(self, window: Range) -> bool:
        """Whether the window holds no sound at all."""
        return is_silent(self._samples[window[0] : window[1]])

    async def item(self, window: Range) -> EncoderItem:
        """The window's features and their hash."""
        return await trio.to_thread.run_sync(self._decoder.item, self._samples[window[0] : window[1]])


class Transcriber:
    """Transcribes whole recordings with one model. Shared by all requests; holds no state of any."""

    def __init__(self, decoder: WindowDecoder) -> None:
        self.decoder = decoder

    async def transcribe(
        self,
        samples: Samples,
        options: TranscriptionOptions,
        *,
        priority: int = FILE_PRIORITY,
        on_delta: Callable[[str], None] | None = None,
    ) -> Transcript:
        """The transcript of `samples` (mono float32 at 16 kHz, shape [n], any length).

        `on_delta` gets the text in order while it grows; its pieces join to `Transcript.text`. Raises
        BadRequestError for a language or task the model does not know, else the engine's errors.
        Cancelling stops all work on it.
        """
        cut = partial(
            split, window_samples=self.decoder.window_samples, search_samples=self.decoder.search_samples
        )
        windows = await trio.to_thread.run_sync(cut, samples)
        source = FileSource(self.decoder, samples)
        return await transcribe_windows(
            self.decoder, windows, source, WindowMemory(), options, priority=priority, on_delta=on_delta
        )


async def transcribe_windows(
    decoder: WindowDecoder,
    windows: list[Range],
    source: WindowSource,
    memory: WindowMemory,
    options: TranscriptionOptions,
    *,
    priority: int,
    guess: str | None = None,
    on_delta: Callable[[str], None] | None = None,
) -> Transcript:
    """Transcribe contiguous windows of one recording.

    With `guess`, windows are decoded in that language while it is being detected; if the guess was wrong
    they are decoded again, so it never changes the result.
    """
    work = _Work(decoder, source, memory, options, priority)
    if not decoder.text.is_multilingual:
        if options.language is not None:
            decoder.text.check_language(options.language)
        language = None
    elif options.language is not None:
        language = decoder.text.check_language(options.language)
    elif guess is not None:
        async with open_work() as nursery:
            nursery.start_soon(work.decode_all, windows, guess, None)
            language = await work.language(windows)
            if language != guess:
                nursery.cancel_scope.cancel()
    else:
        language = await work.language(windows)
    deltas = None
    if on_delta is not None:
        deltas = DeltaJoiner(len(windows), _separator(language), on_delta)
    await work.decode_all(windows, language, deltas)
    assemble = partial(_assemble, decoder, windows, memory, options, language)
    return assemble() if len(windows) <= _WINDOWS_AT_ONCE else await trio.to_thread.run_sync(assemble)


@dataclass(slots=True)
class _Work:
    """One call of `transcribe_windows`: the steps that fill its memory."""

    decoder: WindowDecoder
    source: WindowSource
    memory: WindowMemory
    options: TranscriptionOptions
    priority: int

    async def language(self, windows: list[Range]) -> str:
        """Language of the first window that holds speech; of the first with any sound if none does."""
        first: str | None = None
        for window in windows:
            if window not in self.memory.detections:
                if self.source.is_silent(window):
                    continue
                item = await self.source.item(window)
                self.memory.detections[window] = await self.decoder.detect(item, priority=self.priority)
            detection = self.memory.detections[window]
            if detection.is_speech:
                return detection.language
            first = first or detection.language
        return first or self.decoder.text.info.languages[0]

    async def decode_all(
        self, windows: list[Range], language: str | None, deltas: DeltaJoiner | None
    ) -> None:
        """Answer every window that has no answer in this language yet."""
        limit = trio.CapacityLimiter(_WINDOWS_AT_ONCE)

        async def one(index: int, window: Range) -> None:
            try:
                await self._decode(index, window, language, deltas)
            finally:
                limit.release_on_behalf_of(index)

        # Windows start in order, so that text to stream comes from the front.
        async with open_work() as nursery:
            for index, window in enumerate(windows):
                await limit.acquire_on_behalf_of(index)
                nursery.start_soon(one, index, window)

    async def _decode(
        self, index: int, window: Range, language: str | None, deltas: DeltaJoiner | None
    ) -> None:
        key = (window, language)
        item: EncoderItem | None = None
        if key not in self.memory.answers:
            if self.source.is_silent(window):
                self.memory.answers[key] = SILENCE
            else:
                item = await self.source.item(window)
                answer = await self.decoder.decode(
                    item,
                    self.options,
                    language=language,
                    draft=self.memory.drafts.get(window[0], ()),
                    priority=self.priority,
                    on_text=None if deltas is None else deltas.feeder(index),
                )
                self.memory.answers[key] = answer
                self.memory.drafts[window[0]] = answer.token_ids
        answer = self.memory.answers[key]
        if deltas is not None:
            deltas.finish(index, self.decoder.text.decode(answer.token_ids))
        if self.options.word_timestamps and key not in self.memory.words and answer.token_ids:
            self.memory.words[key] = await self.decoder.words(
                item or await self.source.item(window),
                answer,
                language=language,
                num_samples=window[1] - window[0],
                offset_s=0.0,
                priority=self.priority,
            )


class DeltaJoiner:
    """Puts the growing texts of windows into one stream, in order, equal to the joined transcript.

    A window's text is released when every window before it has finished; the white space around each
    window's text is dropped, and `separator` put between texts that are not empty.
    """

    def __init__(self, num_windows: int, separator: str, emit: Callable[[str], None]) -> None:
        self._texts = [""] * num_windows
        self._finished = [False] * num_windows
        self._separator = separator
        self._emit = emit
        self._head = 0
        self._num_released = 0  # characters of the head window's stripped text
        self._any_released = False

    def feeder(self, index: int) -> Callable[[str], None]:
        """Takes pieces of the window's text."""

        def feed(text: str) -> None:
            self._texts[index] += text
            self._flush()

        return feed

    def finish(self, index: int, text: str) -> None:
        """The window's whole text is `text`; what was fed is a prefix of it."""
        self._texts[index] = text
        self._finished[index] = True
        self._flush()

    def _flush(self) -> None:
        while self._head < len(self._texts):
            text = self._texts[self._head].strip()
            fresh = text[self._num_released :]
            if fresh:
                prefix = self._separator if self._any_released and not self._num_released else ""
                self._emit(prefix + fresh)
                self._any_released = True
                self._num_released = len(text)
            if not self._finished[self._head]:
                return
            self._head += 1
            self._num_released = 0


def _separator(language: str | None) -> str:
    return "" if language in UNSPACED_LANGUAGES else " "


def _assemble(
    decoder: WindowDecoder,
    windows: list[Range],
    memory: WindowMemory,
    options: TranscriptionOptions,
    language: str | None,
) -> Transcript:
    rate = decoder.features.sampling_rate
    begin = windows[0][0] if windows else 0
    texts: list[str] = []
    segments: list[Segment] = []
    words: list[Word] = []
    logprobs: list[float] = []
    num_input = num_output = 0
    for window in windows:
        answer = memory.answers[(window, language)]
        offset_s = (window[0] - begin) / rate
        duration_s = (window[1] - window[0]) / rate
        texts.append(decoder.text.decode(answer.token_ids).strip())
        logprobs += answer.logprobs
        num_input += decoder.num_positions(window[1] - window[0]) + answer.num_prompt
        num_output += len(answer.token_ids)
        segments += decoder.text.parse(
            answer.token_ids,
            duration_s=duration_s,
            logprobs=answer.logprobs,
            offset_s=offset_s,
            first_id=len(segments),
            temperature=options.temperature,
            no_speech_prob=answer.no_speech_prob,
        )
        words += [
            Word(word.word, round(word.start + offset_s, 3), round(word.end + offset_s, 3))
            for word in memory.words.get((window, language), ())
        ]
    answers = [memory.answers[(window, language)] for window in windows]
    tokens = [token for answer in answers for token in _token_logprobs(decoder, answer)]
    return Transcript(
        text=_separator(language).join(text for text in texts if text),
        language=language or "en",
        duration=(windows[-1][1] - begin) / rate if windows else 0.0,
        segments=tuple(segments),
        words=tuple(words),
        num_input_tokens=num_input,
        num_output_tokens=num_output,
        avg_logprob=sum(logprobs) / len(logprobs) if logprobs else None,
        no_speech_prob=min((answer.no_speech_prob for answer in answers), default=1.0),
        tokens=tuple(tokens) if options.logprobs else (),
    )


def _token_logprobs(decoder: WindowDecoder, answer: WindowAnswer) -> Iterator[TokenLogProb]:
    for token_id, logprob in zip(answer.token_ids, answer.logprobs, strict=False):
        if decoder.text.is_text(token_id):
            data = decoder.text.tokenizer.token_bytes(token_id)
            yield TokenLogProb(data.decode("utf-8", errors="replace"), data, logprob)
