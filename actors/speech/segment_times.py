"""When the sentences of a Qwen3-ASR segment were said. The model gives no times: the audio does.

Words are timed by `media/word_times.py` and cut into sentences by `media/sentences.py`; here the answer's
tokens and their probabilities are dealt out to the sentences. Read `actors/speech/segment_work.py` for who
asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...engine.models.whisper.text import compression_ratio
from ...media.sentences import TimedText, segments_of
from ...protocols.transcript import Segment, Word
from .segments import SegmentAnswer


def sentences(
    answer: SegmentAnswer,
    words: Sequence[Word],
    *,
    bytes_of: Callable[[int], bytes],
    temperature: float,
    start_s: float,
    end_s: float,
) -> tuple[Segment, ...]:
    """The sentences of an answer about `[start_s, end_s)`; `words` count from `start_s`.

    Without words the whole answer is one, as long as the audio.
    """
    texts = segments_of(answer.text, words) or (TimedText(answer.text, 0.0, end_s - start_s),)
    return tuple(
        Segment(
            id=number,
            seek=round(start_s * 100),
            start=round(start_s + text.start, 3),
            end=round(start_s + text.end, 3),
            text=text.text,
            tokens=answer.text_ids[first:last],
            temperature=temperature,
            avg_logprob=sum(answer.logprobs[first:last]) / max(1, len(answer.logprobs[first:last])),
            compression_ratio=compression_ratio(text.text),
            no_speech_prob=0.0,
        )
        for number, (text, (first, last)) in enumerate(
            zip(texts, _tokens_of(texts, answer.text_ids, bytes_of), strict=True)
        )
    )


def shifted(words: Sequence[Word], by_s: float) -> tuple[Word, ...]:
    """The words, as much later."""
    return tuple(Word(word.word, round(word.start + by_s, 3), round(word.end + by_s, 3)) for word in words)


def _tokens_of(
    texts: Sequence[TimedText], token_ids: Sequence[int], bytes_of: Callable[[int], bytes]
) -> Iterator[tuple[int, int]]:
    """First token, and last + 1, of each text: those that begin in it, by bytes that are no white space."""
    index = num_seen = num_wanted = 0
    for number, text in enumerate(texts):
        first = index
        num_wanted += len("".join(text.text.split()).encode())
        is_last = number + 1 == len(texts)
        while index < len(token_ids) and (is_last or num_seen < num_wanted):
            num_seen += len(b"".join(bytes_of(token_ids[index]).split()))
            index += 1
        yield first, index
