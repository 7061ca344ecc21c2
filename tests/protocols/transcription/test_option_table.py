"""The table of transcription options: what is read from it, and that every place has every option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from sensorium.client.realtime.transcription_machine import SessionOptions
from sensorium.client.requests import TranscriptOptions
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.realtime.session import TranscriptionPatch
from sensorium.protocols.transcription.form import FIELDS
from sensorium.protocols.transcription.operations import SPEECH_FORM, SPEECH_QUERY
from sensorium.protocols.transcription.option_table import options_of
from sensorium.protocols.transcription.options import FormOptions, LiveSpeechOptions, RecordingOptions
from sensorium.protocols.transcription.transcript import TranscriptionOptions

Share = Annotated[float, Meta(gt=0, le=1, description="Of a type.")]
OTHERWISE = {
    "hallucination_silence_threshold": "max_silence_s",
    "clip_timestamps": "clips",
    "vad_filter": "speech_filter",
    "vad_parameters": "speech_filter",
    "chunking_strategy": "speech_filter",
    "timestamp_granularities": "word_timestamps",
    "include": "logprobs",
    "hotwords": "keywords",
    "use_beam_search": "beam_size",
    "n": "beam_size",
    "max_line_width": "cue_layout",
    "max_line_count": "cue_layout",
    "max_words_per_line": "cue_layout",
}
"""Options that the server keeps under another name."""
OF_THE_ANSWER = {
    "model",
    "url",
    "response_format",
    "highlight_words",
    "stream",
    "dialect",
    "stream_include_usage",
    "stream_continuous_usage_stats",
}
"""Options of how the answer is sent."""


class Sample(TypedDict, total=False):
    whole: Annotated[int | None, Meta(ge=-1, le=5, description="A number.")]
    share: Annotated[Share | None, Meta(description="Of the row.")]
    plain_share: Share | None
    choice: Literal["a", "b"] | None
    several: Annotated[Share | Sequence[float] | None, Meta(description="One or several.")]
    words: Sequence[str]
    text_of_several: str | Sequence[Share] | None
    thing: str | Mapping[str, object] | None


def test_a_row_is_read_whole() -> None:
    rows = options_of(Sample)
    assert {name: row.base for name, row in rows.items()} == {
        "whole": int,
        "share": float,
        "plain_share": float,
        "choice": Literal["a", "b"],
        "several": float,
        "words": str,
        "text_of_several": float,
        "thing": Mapping,
    }
    assert [name for name, row in rows.items() if row.takes_several] == [
        "several",
        "words",
        "text_of_several",
    ]
    assert [name for name, row in rows.items() if not row.takes_one] == ["words"]
    assert [name for name, row in rows.items() if row.takes_text] == ["text_of_several"]
    assert rows["choice"].choices == ("a", "b")
    described = {name: row.description for name, row in rows.items() if row.description}
    assert described == {
        "whole": "A number.",
        "share": "Of the row.",
        "plain_share": "Of a type.",
        "several": "One or several.",
        "text_of_several": "Of a type.",
    }


@given(st.sampled_from(["whole", "share"]), st.one_of(st.floats(-3, 7), st.integers(-3, 7)))
def test_a_number_is_read_within_its_range_or_refused(name: str, number: float) -> None:
    is_allowed = 0 < number <= 1 if name == "share" else -1 <= number <= 5 and number == int(number)
    row = options_of(Sample)[name]
    try:
        assert row.parse(f" {number}") == number
    except BadRequestError as error:
        assert error.param == name  # noqa: PT017
        assert row.allowed in error.message  # noqa: PT017
        is_allowed = not is_allowed
    assert is_allowed


@pytest.mark.parametrize("text", ["3", " 3 ", "3.0", "3.000", "03"])
def test_a_whole_number_may_be_written_with_a_fraction(text: str) -> None:
    assert options_of(Sample)["whole"].parse(text) == 3


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("whole", "6", "must be a whole number from -1 to 5, not '6'"),
        ("whole", "2.5", "must be a whole number from -1 to 5, not '2.5'"),
        ("share", "0", "must be a number from above 0 up to 1, not '0'"),
        ("share", "nan", "must be a number from above 0 up to 1, not 'nan'"),
        ("choice", "c", "must be one of a, b, not 'c'"),
        ("whole", "1" * 5000, f"must be a whole number from -1 to 5, not '{'1' * 40}…'"),
    ],
)
def test_a_refusal_says_what_is_allowed(name: str, text: str, problem: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        options_of(Sample)[name].parse(text)
    assert refused.value.message == f"`{name}` {problem}"


def test_every_option_of_the_form_arrives() -> None:
    """A row that no field takes would be accepted and lost."""
    kept = TranscriptionOptions.__struct_fields__
    for name in FIELDS.keys() - OF_THE_ANSWER:
        assert OTHERWISE.get(name, name) in kept, name
    assert not OTHERWISE.keys() & set(kept)


def test_every_option_is_described_where_it_may_stand() -> None:
    for name, option in options_of(FormOptions).items():
        assert option.description or option.choices, name
    described = SPEECH_FORM["properties"].keys() | SPEECH_QUERY.keys()
    assert described == {*FIELDS, "file"}
    assert options_of(LiveSpeechOptions).keys() <= set(TranscriptionPatch.__struct_fields__)
    assert options_of(LiveSpeechOptions).keys() <= options_of(SessionOptions).keys()
    assert options_of(RecordingOptions).keys() <= options_of(TranscriptOptions).keys()


def test_the_schema_of_the_form_has_ranges_choices_and_defaults() -> None:
    fields: dict[str, Any] = SPEECH_FORM["properties"]
    assert fields["best_of"] | {"description": ""} == {
        "type": "integer",
        "minimum": 1,
        "maximum": 8,
        "default": 1,
        "description": "",
    }
    assert fields["patience"]["exclusiveMinimum"] == 0
    assert fields["temperature"]["items"] == {"type": "number", "minimum": 0, "maximum": 1}
    assert fields["temperature"]["maxItems"] == 8
    assert set(fields["numerals"]["enum"]) == {"words", "digits"}
    assert fields["include"]["items"] == {"enum": ["logprobs"]}
    assert fields["vad_filter"]["type"] == "boolean"
    assert fields["prompt"]["maxLength"] == 10_000
    assert (fields["keyword_boost"]["default"], fields["response_format"]["default"]) == (2.5, "json")
    assert {fields[name]["type"] for name in ("clip_timestamps", "hotwords", "vad_parameters")} == {"string"}
