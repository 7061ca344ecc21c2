"""The options of a transcription: each is declared here, once, under the name that clients use.

A key of these classes is an option. Its type is what Python callers may give; its `Meta` has the range and
the description. `protocols/transcription/option_table.py` reads the keys, and from there come the form field
with its check (`protocols/transcription/form.py`), the OpenAPI schema
(`protocols/transcription/operations.py`) and the command-line option with its help
(`client/cli/option_group.py`). The class says where an option may stand.
What the server works with, and its defaults, are in `TranscriptionOptions`
(`protocols/transcription/transcript.py`): a field of the same name there gets the value as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypedDict

from msgspec import Meta

from ..shared.sampling import (
    MAX_SEED,
    FrequencyPenalty,
    MinP,
    NgramSize,
    PresencePenalty,
    RepetitionPenalty,
    TopK,
    TopP,
)
from .hints import MAX_KEYWORD_BOOST
from .numerals import Numerals
from .transcript import Task

ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "tsv"]
StreamDialect = Literal["openai", "vllm"]
Granularity = Literal["word", "segment"]
Delay = Literal["minimal", "low", "medium", "high", "xhigh"]
Prompt = Annotated[str, Meta(max_length=10_000)]
KeywordBoost = Annotated[float, Meta(ge=0, le=MAX_KEYWORD_BOOST)]
UtteranceEnd = Annotated[int, Meta(ge=500, le=10_000)]
"""Milliseconds. Hypotheses come every 240 to 600 ms: gaps much shorter than that are not seen in them."""
LeftContext = Annotated[int, Meta(ge=0, le=24_000)]
"""Milliseconds: a model hears at most 30 s at once, the turn among them."""
Seconds = Annotated[float, Meta(ge=0, le=7 * 24 * 3600)]
DrawTemperature = Annotated[float, Meta(ge=0, le=1)]
NumAnswers = Annotated[int, Meta(ge=1, le=8)]
MAX_AUDIO_TRACKS: Final = 64
"""As many streams as a file is opened with."""


class SpeechOptions(TypedDict, total=False):
    """Options of files and of live sessions. What is not given is left to the server."""

    language: Annotated[
        str | None, Meta(description="Code, tag or name such as en, en-US or english; detected if not given.")
    ]
    prompt: Annotated[
        Prompt | None, Meta(description="Text in the speaker's style, with names and words to expect.")
    ]
    languages: Annotated[
        Sequence[str], Meta(description="Languages to choose from where no `language` is given.")
    ]
    keywords: Annotated[Sequence[str], Meta(description="Names or words to expect.")]
    keyword_boost: Annotated[
        KeywordBoost | None,
        Meta(
            description="How much likelier `keywords` are, 0 to 5; 2.5 finds nearly all that can be found. "
            "With 0, a temperature, several beams, or a word of one or two letters the model only gets them "
            "as text."
        ),
    ]
    numerals: Annotated[
        Numerals | None,
        Meta(
            description="words or digits: how numbers are written, whatever the model prefers. Words need a "
            "model that spells numbers (Whisper); digits are made in da, de, en, es, fr, it, nl and pt."
        ),
    ]
    task: Annotated[
        Task | None,
        Meta(description="translate: the text is in English, whatever is spoken (Whisper); else transcribe."),
    ]


class LiveSpeechOptions(SpeechOptions, total=False):
    """Options of live sessions."""

    delay: Annotated[
        Delay | None,
        Meta(
            description="How long text waits before it is shown: minimal, low, medium, high or xhigh. Less "
            "is sooner, more is corrected less often."
        ),
    ]
    utterance_end_ms: Annotated[
        UtteranceEnd | None,
        Meta(
            description="Report the end of an utterance this long after its last word (500 to 10000 ms), "
            "also where noise keeps its turn open."
        ),
    ]
    left_context_ms: Annotated[
        LeftContext | None,
        Meta(
            description="Transcribe turns together with this much of the speech before them (at most 24000 "
            "ms; Whisper): fewer words are wrong, above all of short turns."
        ),
    ]


class SubtitleOptions(TypedDict, total=False):
    """Options of the formats `srt` and `vtt`: how cues are laid out."""

    max_line_width: Annotated[
        int | None,
        Meta(
            ge=1,
            le=1000,
            description="Columns of a subtitle's line: 42 if not given. Chinese, Japanese and Korean "
            "characters take two.",
        ),
    ]
    max_line_count: Annotated[
        int | None,
        Meta(ge=1, le=4, description="Lines of a subtitle: 2 if not given, 1 with `max_words_per_line`."),
    ]
    max_words_per_line: Annotated[int | None, Meta(ge=1, le=20, description="Words of a subtitle's line.")]
    highlight_words: Annotated[
        bool | None, Meta(description="Underline each word while it is spoken (srt and vtt).")
    ]


class RecordingOptions(SpeechOptions, SubtitleOptions, total=False):
    """Options of files, streamed or not."""

    temperature: Annotated[
        DrawTemperature | Sequence[float] | None,
        Meta(
            description="How freely tokens are drawn, from 0 (not at all) to 1. Of several, rising, each is "
            "tried while the answer repeats itself or is unlikely.",
        ),
    ]
    best_of: Annotated[
        NumAnswers | None,
        Meta(description="Draw this many answers where a temperature is above 0, and keep the likeliest."),
    ]
    seed: Annotated[int | None, Meta(ge=0, le=MAX_SEED, description="The same seed draws the same answers.")]
    beam_size: Annotated[
        NumAnswers | None,
        Meta(description="Beams of the search where the temperature is 0, the likeliest counts: slower."),
    ]
    length_penalty: Annotated[
        float | None,
        Meta(ge=0, le=4, description="How much beams favour longer answers: 1 if not given, 0 not at all."),
    ]
    patience: Annotated[
        float | None,
        Meta(
            gt=0,
            le=4,
            description="How many answers must have ended, as a share of `beam_size`, before the search "
            "may: 1 if not given.",
        ),
    ]
    top_p: TopP | None
    top_k: TopK | None
    min_p: MinP | None
    presence_penalty: PresencePenalty | None
    frequency_penalty: FrequencyPenalty | None
    repetition_penalty: RepetitionPenalty | None
    no_repeat_ngram_size: NgramSize | None
    hallucination_silence_threshold: Annotated[
        float | None,
        Meta(gt=0, le=60, description="Leave out sentences during which this many seconds are silent."),
    ]
    clip_timestamps: Annotated[
        str | Sequence[Seconds] | None,
        Meta(
            description="Parts to transcribe, in seconds: start,end,start,…; the last end may be missing.",
        ),
    ]
    condition_on_previous_text: Annotated[
        bool | None,
        Meta(
            description="Transcribe windows one after the other, each with the text before it as context: "
            "slower, names and terms stay the same."
        ),
    ]
    multichannel: Annotated[
        bool | None,
        Meta(description="Transcribe each channel separately; mixed if not given. Not streamed."),
    ]
    audio_track: Annotated[
        int | None,
        Meta(
            ge=0,
            le=MAX_AUDIO_TRACKS - 1,
            description="Which of a file's audio tracks, counted from 0; its default track if not given.",
        ),
    ]
    vad_filter: Annotated[bool | None, Meta(description="Leave out what is not speech.")]
    vad_parameters: Annotated[
        Mapping[str, float] | None,
        Meta(
            description="Of `vad_filter`: threshold, min_speech_duration_ms, min_silence_duration_ms, "
            "speech_pad_ms."
        ),
    ]
    chunking_strategy: Annotated[
        str | Mapping[str, object] | None,
        Meta(
            description="OpenAI's form of `vad_filter`: auto, or type server_vad with threshold, "
            "prefix_padding_ms, silence_duration_ms."
        ),
    ]


class FormOptions(RecordingOptions, total=False):
    """Fields of the form that the classes above do not have."""

    model: Annotated[str | None, Meta(description="One of the server's models; its default if not given.")]
    url: Annotated[str | None, Meta(description="The file's http: or https: address, or a data: URI.")]
    response_format: ResponseFormat | None
    timestamp_granularities: Annotated[
        Sequence[Granularity], Meta(description="What has times in verbose_json: segment if not given.")
    ]
    include: Annotated[
        Sequence[Literal["logprobs"]], Meta(description="Log-probabilities of tokens, with json.")
    ]
    hotwords: Annotated[str | Sequence[str] | None, Meta(description="`keywords`, with commas between them.")]
    use_beam_search: Annotated[bool | None, Meta(description="vLLM's: `n` is the `beam_size`.")]
    n: Annotated[NumAnswers | None, Meta(description="Beams of `use_beam_search`.")]
    stream: Annotated[
        bool | None,
        Meta(description="Events: text as it grows, with verbose_json segments; not with srt, vtt and tsv."),
    ]
    dialect: Annotated[StreamDialect | None, Meta(description="Whose frames a stream has.")]
    stream_include_usage: Annotated[
        bool | None, Meta(description="vLLM's frames, and after the text one with the tokens used.")
    ]
    stream_continuous_usage_stats: Annotated[bool | None, Meta(description="As `stream_include_usage`.")]
