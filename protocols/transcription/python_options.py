"""What whoever asks for a transcript from Python can say about it, on the command line, too.

The names are those of the form's fields (`protocols/transcription/form.py`). The SDK sends them
(`client/requests.py`), the local engine reads them as a server would (`actors/local/speech.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from .numerals import Numerals
from .transcript import Task


class SpeechOptions(TypedDict, total=False):
    """What can be said about the speech in a file or a session. What is not given is left to the server.

    Parameters
    ----------
    language
        Code, tag or name such as en, en-US or english; detected if not given.
    prompt
        Text in the speaker's style, with names and words to expect.
    languages
        Languages to choose from where no language is given; repeat it for each.
    keywords
        Name or word to expect; repeat it for each.
    keyword_boost
        How much likelier these are, 0 to 5; the server's 2.5 finds nearly all that can be found. With 0, a
        temperature, several beams, or a word of one or two letters the model only gets them in its prompt.
    numerals
        words or digits: how numbers are written. Not every model can write words; digits are converted in
        da, de, en, es, fr, it, nl and pt.
    task
        translate: the text is in English, whatever is spoken (Whisper); transcribe if not given.
    """

    language: str | None
    prompt: str | None
    languages: Sequence[str]
    keywords: Sequence[str]
    keyword_boost: float | None
    numerals: Numerals | None
    task: Task | None


class SubtitleOptions(TypedDict, total=False):
    """How cues of `srt` and `vtt` are laid out; no other format has any.

    Parameters
    ----------
    max_line_width
        Columns of a subtitle's line: 42 if not given. Chinese, Japanese and Korean characters take two.
    max_line_count
        Lines of a subtitle: 2 if not given, 1 with --max-words-per-line.
    max_words_per_line
        Words of a subtitle's line.
    highlight_words
        Underline each word while it is spoken.
    """

    max_line_width: int | None
    max_line_count: int | None
    max_words_per_line: int | None
    highlight_words: bool | None


class SearchOptions(TypedDict, total=False):
    """How the answer about a part of a file is searched for.

    Parameters
    ----------
    best_of
        Draw so many answers where a temperature is above 0, and keep the likeliest.
    seed
        Draw the same answers every time.
    beam_size
        Let so many answers grow side by side where the temperature is 0, and keep the likeliest: slower.
    length_penalty
        How much these favour longer answers: 1 if not given, 0 not at all.
    patience
        How many of them must have ended, as a share of --beam-size, before the search may: 1 if not given.
    top_p
        Draw from the likeliest tokens up to so much probability where a temperature is above 0.
    top_k
        Draw from so many of the likeliest.
    min_p
        Draw from those of at least so much of the likeliest one's probability.
    presence_penalty
        Make words of the answer less likely to come again, however often they came: 0 if not given.
    frequency_penalty
        As presence_penalty, once for each time they came.
    repetition_penalty
        Divide the probability of words that came already: 1 if not given, which changes nothing.
    no_repeat_ngram_size
        Let no so many tokens in a row come twice.
    """

    best_of: int | None
    seed: int | None
    beam_size: int | None
    length_penalty: float | None
    patience: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None


class RecordingOptions(SpeechOptions, SearchOptions, SubtitleOptions, total=False):
    """What can be asked about a recording, streamed or not.

    With `condition_on_previous_text` each window of a long one is answered with the text before it in mind,
    one after the other: slower, terms stay the same.

    `temperature` may be several, rising: each is tried while an answer repeats itself or is unlikely.
    Text in a silence of at least `hallucination_silence_threshold` seconds is left out. Of
    `clip_timestamps`, seconds as `[start, end, start, …]`, only the parts between are transcribed; the last
    end may be the file's.

    With `multichannel` each channel is transcribed for itself: `Transcript.channels`; text, segments and
    words are all of theirs in order, and say which channel they are of. Not for `transcribe_stream`.

    `audio_track` is which of a file's audio tracks is transcribed, counted from 0: if not given, the one that
    the file flags as its default, or else the first.

    With `vad_filter` audio without speech is left out; `vad_parameters` are faster-whisper's `threshold`,
    `min_speech_duration_ms`, `min_silence_duration_ms` and `speech_pad_ms`. `chunking_strategy` is OpenAI's
    way to say it: `{"type": "server_vad", "threshold": …, "prefix_padding_ms": …, "silence_duration_ms": …}`.
    """

    temperature: float | Sequence[float] | None
    hallucination_silence_threshold: float | None
    clip_timestamps: str | Sequence[float] | None
    condition_on_previous_text: bool | None
    multichannel: bool | None
    audio_track: int | None
    vad_filter: bool | None
    vad_parameters: Mapping[str, float] | None
    chunking_strategy: str | Mapping[str, object] | None
