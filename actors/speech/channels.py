"""A transcript of each channel of a recording, where each is somebody else's: both ends of a telephone call.

Channels are transcribed side by side, each as a recording of its own (`actors/speech/transcriber.py`), and
read together in the order in which their sentences begin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from ...media.transcript.joining import separator
from ...media.transcript.range_answer import Samples
from ...protocols.transcription.transcript import Coverage, Segment, Transcript, TranscriptionOptions
from ..runtime.nursery import all_of
from ..runtime.off_loop import off_loop


async def transcribe_channels(
    transcribe: Callable[[Samples, TranscriptionOptions], Awaitable[Transcript]],
    samples: Samples,
    options: TranscriptionOptions,
) -> Transcript:
    """The transcript of `samples` [channels, n], with that of each channel in `channels`.

    Its segments and words are all of theirs, by when they begin, and say which channel they are of.
    """
    timed = msgspec.structs.replace(options, multichannel=False, segment_timestamps=True)

    async def one(channel: int) -> Transcript:
        return await transcribe(samples[channel], timed)

    found = await all_of(one, range(len(samples)))

    def join() -> Transcript:
        return together([_marked(each, channel) for channel, each in enumerate(found)])

    return await off_loop(join, size=sum(len(each.text) for each in found))


def together(channels: Sequence[Transcript]) -> Transcript:
    """One transcript of all channels, at least one, whose segments say which they are of."""
    segments = list(
        _read_together(sorted((segment for channel in channels for segment in channel.segments), key=_place))
    )
    main = max(channels, key=_speaking_time_s)
    detected = [main.language, *(code for channel in channels for code in channel.languages)]
    logprobs = [
        (channel.avg_logprob, channel.num_output_tokens)
        for channel in channels
        if channel.avg_logprob is not None and channel.num_output_tokens
    ]
    num_tokens = sum(count for _, count in logprobs)
    return Transcript(
        text="".join(segment.text for segment in segments).strip(),
        language=main.language,
        duration=main.duration,
        languages=tuple(dict.fromkeys(code for code in detected if code)),
        language_probability=main.language_probability,
        segments=tuple(segments),
        words=tuple(
            sorted(
                (word for channel in channels for word in channel.words),
                key=lambda word: (word.start, word.channel or 0),
            )
        ),
        num_input_tokens=sum(channel.num_input_tokens for channel in channels),
        num_audio_tokens=sum(channel.num_audio_tokens for channel in channels),
        num_output_tokens=sum(channel.num_output_tokens for channel in channels),
        avg_logprob=sum(mean * count for mean, count in logprobs) / num_tokens if num_tokens else None,
        no_speech_prob=min(channel.no_speech_prob for channel in channels),
        channels=tuple(channels),
        coverage=sum((channel.coverage for channel in channels), Coverage()),
        retranscribed=tuple(
            sorted(
                (each for channel in channels for each in channel.retranscribed), key=lambda each: each.start
            )
        ),
    )


def _marked(transcript: Transcript, channel: int) -> Transcript:
    """The transcript of one channel, whose parts say so."""
    return msgspec.structs.replace(
        transcript,
        segments=tuple(msgspec.structs.replace(each, channel=channel) for each in transcript.segments),
        words=tuple(msgspec.structs.replace(each, channel=channel) for each in transcript.words),
    )


def _read_together(segments: Sequence[Segment]) -> Iterator[Segment]:
    """Segments in order, numbered, their texts joining to one. Behind one of its own channel each stands as
    it does there, else with one separator in front."""
    whole, gap = "", ""  # `gap` is the white space behind, which belongs to what the same channel says next
    before: int | UnsetType = UNSET
    for number, segment in enumerate(segments):
        text, stripped = "", segment.text.lstrip()
        if segment.channel == before:
            text = gap + segment.text
        elif stripped:
            text = separator(whole or stripped[0], stripped) + stripped
        if text:
            before, gap = segment.channel, text[len(text.rstrip()) :]
        whole += text.rstrip()
        yield msgspec.structs.replace(segment, id=number, text=text.rstrip())


def _place(segment: Segment) -> tuple[float, int]:
    return segment.start, segment.channel or 0


def _speaking_time_s(transcript: Transcript) -> float:
    return sum(segment.end - segment.start for segment in transcript.segments)
