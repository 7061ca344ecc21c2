"""What every family makes of options alike."""

from __future__ import annotations

from typing import Any

import pytest
from sensorium.actors.speech.families.family import check_answered, likelier_words, with_options
from sensorium.protocols.engine.messages import RequestId, SamplingParams, TextGenerated
from sensorium.protocols.errors import InternalError
from sensorium.protocols.transcription.transcript import TranscriptionOptions

SAMPLING = SamplingParams(max_tokens=9, stop_token_ids=(3,), logprobs=0)


@pytest.mark.parametrize(
    ("options", "num_beams"),
    [
        (TranscriptionOptions(), 1),
        (TranscriptionOptions(beam_size=5), 5),
        (TranscriptionOptions(beam_size=5, fallback_temperatures=(0.4,), best_of=2), 5),
        (TranscriptionOptions(beam_size=5, temperature=0.4), 1),
    ],
)
def test_answers_grow_side_by_side_at_temperature_0(options: TranscriptionOptions, num_beams: int) -> None:
    sampling = with_options(SAMPLING, options)
    assert sampling == SamplingParams(max_tokens=9, stop_token_ids=(3,), logprobs=0, num_beams=num_beams)


def test_how_several_answers_are_compared() -> None:
    sampling = with_options(SAMPLING, TranscriptionOptions(beam_size=5, length_penalty=0.5, patience=2.0))
    assert (sampling.num_beams, sampling.length_penalty, sampling.patience) == (5, 0.5, 2.0)


def test_repetitions_are_as_likely_as_is_asked_for() -> None:
    asked: dict[str, Any] = {"top_p": 0.4, "top_k": 12, "min_p": 0.5, "presence_penalty": 0.5}
    asked |= {"frequency_penalty": -0.5, "repetition_penalty": 1.3, "no_repeat_ngram_size": 4}
    expected = SamplingParams(max_tokens=9, stop_token_ids=(3,), logprobs=0, **asked)
    assert with_options(SAMPLING, TranscriptionOptions(**asked)) == expected
    assert with_options(SAMPLING, TranscriptionOptions(**asked), num_prompt=7).ngrams_from == 7
    assert with_options(SAMPLING, TranscriptionOptions(), num_prompt=7) == SAMPLING


def test_keywords_are_no_likelier_where_nothing_can_be_taken_back() -> None:
    words = ("Kiel",)
    assert likelier_words(TranscriptionOptions(keywords=words, keyword_boost=2.0)) == (words, 2.0)
    others: list[dict[str, Any]] = [{"temperature": 0.5}, {"beam_size": 2}]
    for other in (*others, {"presence_penalty": 1.0}, {"frequency_penalty": 1.0}):
        options = TranscriptionOptions(keywords=words, keyword_boost=2.0, **other)
        assert likelier_words(options) == (words, 0.0)


def test_why_a_model_failed_on_audio_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer = TextGenerated(RequestId("a"), (), finish_reason="error", error="no memory", fault="not_encoded")
    with pytest.raises(InternalError, match="on this audio: no memory"):
        check_answered(answer)
    assert "no memory" in caplog.text
