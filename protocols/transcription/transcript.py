"""A transcript and the wish for one: values shared by REST, realtime sessions and the engine's text side.

Times are seconds from the start of the transcribed audio; probabilities are natural logs where the name
says `logprob`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from .hints import KEYWORD_BOOST
from .numerals import Numerals

Task = Literal["transcribe", "translate"]


class SpeechFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of a recording are listened to: where somebody speaks."""

    threshold: float = 0.5
    """Probability of speech in a frame, above 0 and below 1."""
    min_speech_ms: int = 0
    """Shorter speech is left out."""
    min_silence_ms: int = 2000
    """Shorter pauses are kept."""
    padding_ms: int = 400
    """Kept before and behind speech."""


class CueLayout(msgspec.Struct, frozen=True, kw_only=True):
    """What a subtitle shows at once, at most; a word by itself may be wider than a line."""

    max_line_width: int = 42
    """Columns, as broadcasters have it; Chinese, Japanese and Korean characters take two."""
    max_line_count: int = 2
    max_words_per_line: int | None = None
    """Where there are no spaces between words, characters."""


USUAL_LAYOUT: Final = CueLayout()
"""Where nothing is said."""


class TranscriptionOptions(msgspec.Struct, frozen=True):
    """How to transcribe, whoever asks. Ranges are checked where a client states them."""

    language: str | None = None
    """ISO-639-1 code; None: detected, again where another is spoken
    (`media/transcript/language_detection.py`)."""
    languages: tuple[str, ...] = ()
    """Codes that detection may answer with; empty: any the model knows. Unused where `language` is given."""
    prompt: str = ""
    """Text before the audio, in the speaker's style; never able to inject control tokens."""
    keywords: tuple[str, ...] = ()
    """Words to expect (names, terms), as the client spells them; as harmless as `prompt`."""
    keyword_boost: float = KEYWORD_BOOST
    """How much likelier they are than the model thinks, in natural logarithms: added where one begins, twice
    that where one goes on; 0: the model is told of them, no more. One that begins and does not go on is taken
    back. Where that cannot be, at a temperature and with several beams, it is as at 0."""
    task: Task = "transcribe"
    numerals: Numerals | None = None
    """Numbers are written so; None: as the model writes them, which is mostly in digits. In digits are those
    of languages whose words for them are known (`protocols/transcription/numerals.py`); others stay as they
    are."""
    temperature: float = 0.0
    fallback_temperatures: tuple[float, ...] = ()
    """Tried one after the other while an answer repeats itself or is unlikely."""
    best_of: int = 1
    """Answers drawn at any temperature above 0, of which the likeliest counts."""
    beam_size: int = 1
    """Answers that grow side by side at temperature 0, of which the likeliest counts; live, only one does."""
    length_penalty: float = 1.0
    patience: float = 1.0
    """How such answers are compared, and when their search ends: see `SamplingParams`."""
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    """See `SamplingParams`."""
    seed: int | None = None
    max_silence_s: float | None = None
    """A sentence that was said while nobody is heard for so long is left out; None: all are kept."""
    condition_on_previous_text: bool = False
    """Whether each window of a long recording is answered with the text before it in mind, one after the
    other; else side by side. Models that take no such text ignore it."""
    multichannel: bool = False
    """Each channel of a file is transcribed for itself; else they are mixed."""
    audio_track: int | None = None
    """Of a file, counted from 0; None: the one that is flagged default, or else the first."""
    clips: tuple[float, ...] = ()
    """Seconds of a whole recording: where a part that is listened to begins, where it ends, where the next
    begins, …; the last end may be left out for the recording's. Empty: all of it."""
    speech_filter: SpeechFilter | None = None
    """Leaves out parts of a whole recording; None: none. A live session's turns are found otherwise."""
    cue_layout: CueLayout = CueLayout()
    """Segments are cut so that each can be shown at once."""
    segment_timestamps: bool = False
    word_timestamps: bool = False
    logprobs: bool = False

    @property
    def needs_tokens(self) -> bool:
        """What was said is told by tokens, or words by how sure the model is of theirs."""
        return self.logprobs or self.word_timestamps


class Word(msgspec.Struct, frozen=True):
    """One word and when it was spoken."""

    word: str
    start: float
    end: float
    probability: float | UnsetType = UNSET
    """How sure the model is of it: the mean of its tokens' probabilities."""
    channel: int | UnsetType = UNSET
    """Counted from 0, where channels are transcribed each for itself."""


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of text with its time, as `verbose_json` reports it."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    language: str | UnsetType = UNSET
    """The code of its language, where that is known."""
    channel: int | UnsetType = UNSET
    """As a word's."""
    words: tuple[Word, ...] = ()
    """Its words, where these are timed; bodies of `verbose_json` have them in `words` only."""


class TimedSegment(Segment, frozen=True):
    """A segment as soon as it is known."""


class TokenLogProb(msgspec.Struct, frozen=True):
    """One generated text token. `data` are its bytes, which need not be whole characters."""

    text: str
    data: bytes
    logprob: float
    likeliest: tuple[tuple[bytes, float], ...] = ()
    """Bytes and log-probabilities of the tokens that could best stand here, itself among them: of the first
    one of a live turn that has just begun, if the model tells."""


Doubt = Literal["cut", "unsaid", "language"]
"""Why a stretch was transcribed again: the answer repeated itself without end or was longer than can be said,
had too few words for the speech, or was in a language that the model doubted."""


class Retranscription(msgspec.Struct, frozen=True):
    """A stretch that was transcribed again, in seconds, and why."""

    start: float
    end: float
    reason: Doubt


class Coverage(msgspec.Struct, frozen=True):
    """How speech and timed words account for each other; they do where they are at most 200 ms apart."""

    speech: float = 0.0
    """Seconds in which voice activity found speech."""
    speech_without_words: float = 0.0
    """Seconds of them."""
    words: int = 0
    words_without_speech: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(
            round(self.speech + other.speech, 3),
            round(self.speech_without_words + other.speech_without_words, 3),
            self.words + other.words,
            self.words_without_speech + other.words_without_speech,
        )


class SpokenText(str):
    """A piece of a transcript that is still being made, with its tokens where log-probabilities are asked
    for."""

    __slots__ = ("tokens",)
    tokens: tuple[TokenLogProb, ...]

    def __new__(cls, text: str, tokens: Iterable[TokenLogProb] = ()) -> Self:
        """`tokens` are those whose text the piece is, as far as these fall together."""
        made = super().__new__(cls, text)
        made.tokens = tuple(tokens)
        return made


class Transcript(msgspec.Struct, frozen=True):
    """The text of a stretch of audio. `text` has no leading or trailing space."""

    text: str
    language: str
    """Of most of the text."""
    duration: float
    languages: tuple[str, ...] = ()
    """All that were heard, `language` first."""
    language_probability: float = 1.0
    """How sure the model was of a language that it found itself; of one that it was given it is asked only in
    doubt, else 1; 0 where there is none because nobody speaks."""
    segments: tuple[Segment, ...] = ()
    words: tuple[Word, ...] = ()
    num_input_tokens: int = 0
    """Encoder positions that hold audio, plus prompt tokens."""
    num_output_tokens: int = 0
    avg_logprob: float | None = None
    no_speech_prob: float = 0.0
    tokens: tuple[TokenLogProb, ...] = ()
    """Filled where `TranscriptionOptions.needs_tokens`, and in a live turn."""
    channels: tuple[Transcript, ...] = ()
    """Of each channel for itself, where that is asked for; all else is of all of them together."""
    num_audio_tokens: int = 0
    """Those of `num_input_tokens` that are no prompt."""
    coverage: Coverage = Coverage()
    """Of the stretches whose words were timed and in which voice activity was looked for."""
    retranscribed: tuple[Retranscription, ...] = ()
    """In order."""
    num_settled: int = 0
    """Of a live turn of a model that streams: so many characters of the text are final, whatever follows."""


def with_words(transcript: Transcript) -> Transcript:
    """The transcript whose segments have their own words, those of each channel, too."""
    if not transcript.words:
        return transcript
    segments = list(transcript.segments)
    for channel in dict.fromkeys(each.channel for each in segments):
        places = [place for place, each in enumerate(segments) if each.channel == channel]
        spoken = (word for word in transcript.words if word.channel == channel)
        for place, words in zip(places, words_of((segments[at].text for at in places), spoken), strict=True):
            segments[place] = msgspec.structs.replace(segments[place], words=words)
    channels = tuple(map(with_words, transcript.channels))
    return msgspec.structs.replace(transcript, segments=tuple(segments), channels=channels)


def tokens_between(transcript: Transcript, start: int, end: int) -> list[TokenLogProb]:
    """Of a transcript's tokens, which may be those of its end only, the ones that end in these bytes of its
    text, after `start` and up to `end`."""
    position = len(transcript.text.encode()) - sum(len(token.data) for token in transcript.tokens)
    found: list[TokenLogProb] = []
    for token in transcript.tokens:
        position += len(token.data)
        if start < position <= end:
            found.append(token)
    return found


def num_letters(text: str) -> int:
    """Characters that are no white space."""
    return len("".join(text.split()))


def words_of(texts: Iterable[str], words: Iterable[Word]) -> Iterator[tuple[Word, ...]]:
    """The words of each text, in order, that they are the words of together: as many as its letters."""
    rest, num_taken, num_wanted = iter(words), 0, 0
    for text in texts:
        num_wanted += num_letters(text)
        own: list[Word] = []
        while num_taken < num_wanted and (word := next(rest, None)) is not None:
            own.append(word)
            num_taken += num_letters(word.word)
        yield tuple(own)
