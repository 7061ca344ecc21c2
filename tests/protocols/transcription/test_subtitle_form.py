"""What a form says of subtitles' lines and words."""

from __future__ import annotations

import pytest
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.form import TranscriptionRequest, parse_transcription_form
from sensorium.protocols.transcription.transcript import CueLayout


def parse(*fields: tuple[str, str]) -> TranscriptionRequest:
    return parse_transcription_form(fields)


def test_how_subtitles_are_laid_out() -> None:
    assert parse(("response_format", "srt")).options.cue_layout == CueLayout()
    one = parse(("response_format", "srt"), ("max_line_width", " 20"), ("max_line_count", "1"))
    assert one.options.cue_layout == CueLayout(max_line_width=20, max_line_count=1)
    assert not one.options.word_timestamps
    by_words = parse(("response_format", "vtt"), ("max_words_per_line", "3")).options.cue_layout
    assert by_words == CueLayout(max_line_count=1, max_words_per_line=3), "a cue is a line"
    two = parse(("response_format", "vtt"), ("max_words_per_line", "3"), ("max_line_count", "2"))
    assert two.options.cue_layout == CueLayout(max_words_per_line=3)
    marked = parse(("response_format", "vtt"), ("highlight_words", "true"))
    assert (marked.highlight_words, marked.options.word_timestamps) == (True, True)
    assert parse(("highlight_words", "false"), ("max_line_width", "")) == parse()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ([("max_line_width", "20")], "max_line_width"),
        ([("max_line_count", "2"), ("response_format", "tsv")], "max_line_count"),
        ([("max_words_per_line", "3"), ("response_format", "verbose_json")], "max_words_per_line"),
        ([("max_words_per_line", "3"), ("response_format", "srt"), ("stream", "true")], "stream"),
        ([("highlight_words", "true"), ("response_format", "text")], "highlight_words"),
        ([("highlight_words", "yes"), ("response_format", "srt")], "highlight_words"),
        ([("max_line_width", "0"), ("response_format", "srt")], "max_line_width"),
        ([("max_line_width", "1001"), ("response_format", "srt")], "max_line_width"),
        ([("max_line_width", "²"), ("response_format", "srt")], "max_line_width"),
        ([("max_line_count", "5"), ("response_format", "vtt")], "max_line_count"),
        ([("max_words_per_line", "2.5"), ("response_format", "vtt")], "max_words_per_line"),
    ],
)
def test_refusals_name_the_field(fields: list[tuple[str, str]], param: str) -> None:
    with pytest.raises(BadRequestError, match=f"`{param}`") as caught:
        parse(*fields)
    assert caught.value.param == param
