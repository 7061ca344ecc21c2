"""How answers about a file are found, as a form says it in vLLM's words."""

from __future__ import annotations

import pytest
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.form import parse_transcription_form
from sensorium.protocols.transcription.transcript import TranscriptionOptions


def options(**fields: str) -> TranscriptionOptions:
    return parse_transcription_form(fields.items()).options


def test_vllms_beams_are_beams() -> None:
    assert options(use_beam_search="true", n="3") == TranscriptionOptions(beam_size=3)


def test_what_is_done_anyway_may_be_said() -> None:
    assert options(use_beam_search="false", n="1", repetition_penalty="1.0") == TranscriptionOptions()


def test_repetitions_may_be_less_likely_or_none() -> None:
    assert options(repetition_penalty="1.3").repetition_penalty == 1.3
    assert options(no_repeat_ngram_size="3").no_repeat_ngram_size == 3
    assert options(no_repeat_ngram_size=" ") == options(no_repeat_ngram_size="0") == TranscriptionOptions()


def test_what_vllms_form_has_of_drawing_is_read() -> None:
    """As its own tests send it."""
    said = options(temperature="0.8", seed="42", top_k="12", top_p="0.4", min_p="0.5")
    assert said == TranscriptionOptions(temperature=0.8, seed=42, top_k=12, top_p=0.4, min_p=0.5)
    assert options(top_k="-1", top_p="1", min_p="0") == TranscriptionOptions()
    less = options(frequency_penalty="1.8", presence_penalty="-2.0")
    assert less == TranscriptionOptions(frequency_penalty=1.8, presence_penalty=-2.0)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": "2"}, "n"),
        ({"top_p": "0"}, "top_p"),
        ({"top_p": "1.1"}, "top_p"),
        ({"top_k": "-2"}, "top_k"),
        ({"top_k": "2.5"}, "top_k"),
        ({"min_p": "nan"}, "min_p"),
        ({"presence_penalty": "2.1"}, "presence_penalty"),
        ({"frequency_penalty": "1", "beam_size": "2"}, "frequency_penalty"),
        ({"n": "9", "use_beam_search": "true"}, "n"),
        ({"n": "2", "use_beam_search": "true", "temperature": "0.5"}, "n"),
        ({"n": "2", "use_beam_search": "true", "beam_size": "2"}, "beam_size"),
        ({"repetition_penalty": "0"}, "repetition_penalty"),
        ({"repetition_penalty": "11"}, "repetition_penalty"),
        ({"no_repeat_ngram_size": "-1"}, "no_repeat_ngram_size"),
        ({"no_repeat_ngram_size": "2.5"}, "no_repeat_ngram_size"),
        ({"no_repeat_ngram_size": "129"}, "no_repeat_ngram_size"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, str], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        options(**fields)
    assert caught.value.param == param
