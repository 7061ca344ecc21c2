"""Transcription forms, in OpenAI's shape: what is read, and what is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.form import TranscriptionRequest, parse_transcription_form
from sensorium.protocols.transcription.transcript import CueLayout, SpeechFilter, TranscriptionOptions


def parse(*fields: tuple[str, str]) -> TranscriptionRequest:
    return parse_transcription_form([("model", "small"), *fields])


def test_an_empty_form_has_the_defaults() -> None:
    request = parse_transcription_form([])
    assert request == TranscriptionRequest(model=None, options=TranscriptionOptions())


def test_every_field() -> None:
    request = parse(
        ("language", "DE"),
        ("prompt", "Küche"),
        ("response_format", "verbose_json"),
        ("temperature", "0.4"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "segment"),
        ("chunking_strategy", "auto"),
        ("seed", "42"),
        ("condition_on_previous_text", "true"),
        ("stream", "false"),
    )
    options = request.options
    assert (request.model, request.response_format, request.stream) == ("small", "verbose_json", False)
    assert (options.language, options.prompt, options.temperature, options.seed) == ("de", "Küche", 0.4, 42)
    assert options.condition_on_previous_text
    assert options.word_timestamps
    assert options.segment_timestamps


@pytest.mark.parametrize(
    ("response_format", "granularities", "expected"),
    [
        ("verbose_json", [], (True, False)),
        ("verbose_json", ["word"], (False, True)),
        ("srt", [], (True, False)),
        ("vtt", [], (True, False)),
        ("srt", ["segment"], (True, False)),
        ("tsv", [], (True, False)),
        ("json", [], (False, False)),
        ("json", ["segment"], (False, False)),
    ],
)
def test_what_is_timed(response_format: str, granularities: list[str], expected: tuple[bool, bool]) -> None:
    fields = [("timestamp_granularities", value) for value in granularities]
    options = parse(("response_format", response_format), *fields).options
    assert (options.segment_timestamps, options.word_timestamps) == expected


@pytest.mark.parametrize(
    ("fields", "dialect", "expected"),
    [
        ([], "", ("openai", False)),
        ([], "vllm", ("vllm", False)),
        ([("stream_include_usage", "true")], "", ("vllm", True)),
        ([("stream_continuous_usage_stats", "true")], "vllm", ("vllm", True)),
        ([("stream_include_usage", "false")], "", ("vllm", False)),
        ([("stream_include_usage", "")], "", ("openai", False)),
        ([("stream_include_usage", "true")], "openai", ("openai", True)),
    ],
)
def test_whose_frames_a_stream_has(
    fields: list[tuple[str, str]], dialect: str, expected: tuple[str, bool]
) -> None:
    request = parse_transcription_form([("dialect", dialect), ("stream", "true"), *fields])
    assert (request.dialect, request.include_usage) == expected


def test_frames_that_nobody_knows_and_usage_of_no_stream_are_refused() -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_transcription_form([("dialect", "sglang")])
    assert refused.value.param == "dialect"
    with pytest.raises(BadRequestError) as refused:
        parse(("stream_include_usage", "true"))
    assert refused.value.param == "stream_include_usage"


@pytest.mark.parametrize("value", ["", "auto", "Auto "])
def test_a_language_that_is_to_be_found(value: str) -> None:
    assert parse(("language", value)).options.language is None


def test_streaming_and_logprobs() -> None:
    request = parse(("stream", "True"), ("include[]", "logprobs"))
    assert request.stream
    assert request.options.logprobs


def test_translation() -> None:
    assert parse_transcription_form([], task="translate").options.task == "translate"


@pytest.mark.parametrize(
    "fields",
    [
        [("chunking_strategy", '{"type":"server_vad","threshold":0.4}')],
        [("chunking_strategy[type]", "server_vad"), ("chunking_strategy[silence_duration_ms]", "250")],
    ],
)
def test_chunking_strategies_say_what_is_listened_to(fields: list[tuple[str, str]]) -> None:
    wish = parse(*fields).options.speech_filter
    assert wish is not None
    assert (wish.threshold, wish.min_silence_ms, wish.padding_ms) in ((0.4, 200, 300), (0.5, 250, 300))
    assert wish.min_speech_ms == 0


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_field_asks_for_nothing(blank: str) -> None:
    names = ("include[]", "include", "timestamp_granularities[]", "languages", "keywords[]", "temperature")
    asked = parse(*((name, blank) for name in (*names, "response_format", "language", "seed")))
    assert asked == parse()
    several = [("timestamp_granularities[]", each) for each in (blank, "word")]
    assert parse(("response_format", "verbose_json"), *several).options.word_timestamps


def test_the_speech_filter_of_faster_whisper() -> None:
    assert parse(("vad_filter", "false"), ("chunking_strategy", "auto")).options == TranscriptionOptions()
    assert parse(("vad_filter", "true")).options.speech_filter == SpeechFilter()
    parameters = (
        '{"threshold":0.6,"min_speech_duration_ms":1,"min_silence_duration_ms":2,"speech_pad_ms":3.0}'
    )
    wish = SpeechFilter(threshold=0.6, min_speech_ms=1, min_silence_ms=2, padding_ms=3)
    for fields in (
        [("vad_parameters", parameters)],
        [
            ("vad_parameters[threshold]", "0.6"),
            ("vad_parameters[min_speech_duration_ms]", "1"),
            ("vad_parameters[min_silence_duration_ms]", "2"),
            ("vad_parameters[speech_pad_ms]", "3"),
        ],
    ):
        assert parse(("vad_filter", "true"), *fields).options.speech_filter == wish


@pytest.mark.parametrize(
    ("name", "whole", "part"),
    [
        ("vad_parameters", "garbage{", ("threshold", "0.6")),
        ("vad_parameters", '{"speech_pad_ms":3}', ("threshold", "0.6")),
        ("chunking_strategy", "auto", ("type", "server_vad")),
    ],
)
def test_an_object_and_its_fields_are_one_too_many(name: str, whole: str, part: tuple[str, str]) -> None:
    filtered = [("vad_filter", "true")] if name == "vad_parameters" else []
    with pytest.raises(BadRequestError, match="given twice") as caught:
        parse(*filtered, (name, whole), (f"{name}[{part[0]}]", part[1]))
    assert caught.value.param == name


def test_temperatures_and_attempts() -> None:
    options = parse(("temperature[]", "0"), ("temperature[]", "0.4"), ("temperature[]", "1")).options
    assert (options.temperature, options.fallback_temperatures, options.best_of) == (0.0, (0.4, 1.0), 1)
    options = parse(("temperature", "0.5"), ("best_of", "5"), ("beam_size", "1")).options
    assert (options.temperature, options.fallback_temperatures, options.best_of) == (0.5, (), 5)
    assert options.beam_size == 1
    assert parse(("temperature", ""), ("best_of", ""), ("beam_size", "")).options == TranscriptionOptions()
    assert parse(("multichannel", "true"), ("response_format", "srt")).options.multichannel
    assert parse(("hallucination_silence_threshold", "2.5")).options.max_silence_s == 2.5
    assert [parse(("audio_track", text)).options.audio_track for text in ("", "0", "63")] == [None, 0, 63]


@pytest.mark.parametrize("temperatures", [(), ("0",), ("0", "0.4", "1"), ("0.0",)])
def test_answers_grow_side_by_side_where_a_temperature_is_0(temperatures: tuple[str, ...]) -> None:
    for beam_size in range(1, 9):
        fields = [("temperature[]", temperature) for temperature in temperatures]
        assert parse(*fields, ("beam_size", f" {beam_size}")).options.beam_size == beam_size
    options = parse(("temperature", "0"), ("temperature", "1"), ("best_of", "3"), ("beam_size", "5")).options
    assert (options.best_of, options.beam_size) == (3, 5)
    wide = parse(("beam_size", "5"), ("length_penalty", "0"), ("patience", "1.5")).options
    assert (wide.length_penalty, wide.patience) == (0.0, 1.5)
    alone = (("length_penalty", "1"), ("patience", "1.0"))
    assert parse(*alone).options == TranscriptionOptions(), "what is done anyway may be said"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ([("response_format", "xml")], "response_format"),
        ([("response_format", "diarized_json")], "response_format"),
        ([("temperature", "1.5")], "temperature"),
        ([("temperature", "-1")], "temperature"),
        ([("temperature", "nan")], "temperature"),
        ([("temperature", "warm")], "temperature"),
        ([("temperature", "[0,0.2]")], "temperature"),
        ([("temperature", "0.4"), ("temperature", "0.4")], "temperature"),
        ([("temperature[]", "0.4"), ("temperature[]", "0.2")], "temperature"),
        ([("temperature", f"0.{digit}") for digit in range(9)], "temperature"),
        ([("best_of", "3")], "best_of"),
        ([("best_of", "0"), ("temperature", "0.5")], "best_of"),
        ([("best_of", "9"), ("temperature", "0.5")], "best_of"),
        ([("best_of", "two"), ("temperature", "0.5")], "best_of"),
        ([("beam_size", "9")], "beam_size"),
        ([("beam_size", "5"), ("temperature", "0.2")], "beam_size"),
        ([("beam_size", "2"), ("temperature[]", "0.2"), ("temperature[]", "0.4")], "beam_size"),
        ([("beam_size", "-2")], "beam_size"),
        ([("beam_size", "2.5")], "beam_size"),
        ([("beam_size", "²")], "beam_size"),
        ([("multichannel", "left")], "multichannel"),
        ([("multichannel", "true"), ("stream", "true")], "multichannel"),
        ([("multichannel", "true"), ("include[]", "logprobs")], "multichannel"),
        ([("audio_track", "-1")], "audio_track"),
        ([("audio_track", "64")], "audio_track"),
        ([("audio_track", "first")], "audio_track"),
        ([("audio_track", "0"), ("audio_track", "1")], "audio_track"),
        ([("beam_size", "0")], "beam_size"),
        ([("length_penalty", "0.5")], "length_penalty"),
        ([("length_penalty", "-1"), ("beam_size", "5")], "length_penalty"),
        ([("length_penalty", "5"), ("beam_size", "5")], "length_penalty"),
        ([("length_penalty", "nan"), ("beam_size", "5")], "length_penalty"),
        ([("patience", "2")], "patience"),
        ([("patience", "0"), ("beam_size", "5")], "patience"),
        ([("patience", "1e9"), ("beam_size", "5")], "patience"),
        ([("hallucination_silence_threshold", "0")], "hallucination_silence_threshold"),
        ([("hallucination_silence_threshold", "-1")], "hallucination_silence_threshold"),
        ([("hallucination_silence_threshold", "inf")], "hallucination_silence_threshold"),
        ([("hallucination_silence_threshold", "long")], "hallucination_silence_threshold"),
        ([("language", "klingon")], "language"),
        ([("language", "e1")], "language"),
        ([("timestamp_granularities[]", "word")], "timestamp_granularities"),
        (
            [("response_format", "verbose_json"), ("timestamp_granularities[]", "x")],
            "timestamp_granularities",
        ),
        ([("stream", "maybe")], "stream"),
        ([("condition_on_previous_text", "2")], "condition_on_previous_text"),
        ([("stream", "true"), ("response_format", "srt")], "stream"),
        ([("stream_include_usage", "1"), ("stream", "1"), ("response_format", "verbose_json")], "stream"),
        ([("chunking_strategy", "sometimes")], "chunking_strategy"),
        ([("chunking_strategy", '{"type":"client_vad"}')], "chunking_strategy"),
        ([("chunking_strategy[threshold]", "0.5")], "chunking_strategy"),
        ([("chunking_strategy", "[" * 50_000)], "chunking_strategy"),
        ([("chunking_strategy", '{"type":"server_vad","threshold":2}')], "chunking_strategy"),
        ([("chunking_strategy", '{"type":"server_vad"}'), ("vad_filter", "1")], "chunking_strategy"),
        ([("vad_filter", "perhaps")], "vad_filter"),
        ([("vad_parameters", '{"threshold":0.5}')], "vad_parameters"),
        ([("vad_filter", "1"), ("vad_parameters", "auto")], "vad_parameters"),
        ([("vad_filter", "1"), ("vad_parameters", '{"treshold":0.5}')], "vad_parameters"),
        ([("vad_filter", "1"), ("vad_parameters[speech_pad_ms]", "-1")], "vad_parameters"),
        ([("include[]", "everything")], "include"),
        ([("include[]", "logprobs"), ("response_format", "text")], "include"),
        ([("numerals", "roman")], "numerals"),
        ([("numerals", "1")], "numerals"),
        ([("seed", "-1")], "seed"),
        ([("seed", "²")], "seed"),
        ([("seed", str(2**63))], "seed"),
        ([("prompt", "x" * 10_001)], "prompt"),
        ([("keywords[]", "Kiel"), ("keywords[]", "x" * 101)], "keywords[1]"),
        ([("keywords", "Kiel")] * 101, "keywords"),
        ([("languages[]", "en"), ("languages[]", "elvish")], "languages[1]"),
        ([("languages", "en")] * 33, "languages"),
        ([("known_speaker_names", "Ada")], "known_speaker_names"),
        ([("model", "again")], "model"),
        ([("keyword", "Kiel")], "keyword"),
        ([("vad", "x"), ("language", "klingon")], "vad"),
        ([("hotwords", "x" * 101)], "hotwords[0]"),
        ([("keyword_boost", "5.1")], "keyword_boost"),
        ([("keyword_boost", "-1")], "keyword_boost"),
        ([("keyword_boost", "nan")], "keyword_boost"),
        ([("keyword_boost", "1"), ("keyword_boost", "1")], "keyword_boost"),
        ([("hotwords", "a,b"), *[("keywords[]", str(n)) for n in range(99)]], "hotwords"),
    ],
)
def test_refusals_name_the_field(fields: list[tuple[str, str]], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(*fields)
    assert caught.value.param == param
    assert f"`{param}" in caught.value.message
    assert len(caught.value.message) < 200


def test_languages_and_keywords_are_lists_of_distinct_entries() -> None:
    request = parse(
        ("languages[]", "EN"),
        ("languages", "de"),
        ("languages[]", "en"),
        ("keywords[]", ""),
        ("keywords[]", " New\n  York "),
        ("keywords[]", "Kiel"),
        ("keywords[]", "New York"),
    )
    assert request.options.languages == ("en", "de")
    assert request.options.keywords == ("New York", "Kiel")


def test_a_field_nobody_defines_may_be_meant_for_another() -> None:
    with pytest.raises(BadRequestError, match="did you mean `keywords`") as caught:
        parse(("keyword", "Kiel"))
    assert caught.value.code == "unknown_parameter"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("word_timestamps", "`timestamp_granularities` word"),
        ("initial_prompt", "it is called `prompt` here"),
        ("logprob_threshold", "a list of `temperature`"),
        ("temperature_inc", "a list of `temperature`"),
        ("output_format", "it is called `response_format` here"),
        ("smart_format", "`numerals` digits"),
        ("keyterm", "`keywords`"),
        ("task", "`/v1/audio/translations`"),
        ("to_language", "`/v1/audio/translations`"),
        ("batch_size", "side by side"),
    ],
)
def test_a_field_that_others_have_is_told_by_our_name(name: str, told: str) -> None:
    with pytest.raises(BadRequestError, match=told) as caught:
        parse((name, "true"))
    assert (caught.value.param, caught.value.code) == (name, "unknown_parameter")


@pytest.mark.parametrize("written", ["en", "EN", "en-US", "en_gb", "English", " english "])
def test_a_language_has_many_names(written: str) -> None:
    options = parse(("language", written), ("languages[]", "de"), ("languages[]", written)).options
    assert (options.language, options.languages) == ("en", ("de", "en"))


def test_how_likely_keywords_are() -> None:
    assert parse().options.keyword_boost == parse(("keyword_boost", " ")).options.keyword_boost == 2.5
    assert parse(("keyword_boost", "0")).options.keyword_boost == 0
    assert parse(("keyword_boost", "4.5")).options.keyword_boost == 4.5


def test_hotwords_are_keywords() -> None:
    request = parse(("keywords[]", "Kiel"), ("hotwords", "New  York, Kiel,, Ada Lovelace "))
    assert request.options.keywords == ("Kiel", "New York", "Ada Lovelace")


names = st.sampled_from(
    [
        "languages[]",
        "keywords[]",
        "model",
        "language",
        "prompt",
        "response_format",
        "temperature",
        "best_of",
        "beam_size",
        "length_penalty",
        "patience",
        "hallucination_silence_threshold",
        "max_line_width",
        "highlight_words",
        "stream",
        "seed",
        "include[]",
        "chunking_strategy",
    ]
)


@given(st.lists(st.tuples(names, st.text(max_size=12)), max_size=4))
def test_any_form_is_parsed_or_refused_by_name(fields: list[tuple[str, str]]) -> None:
    try:
        parse_transcription_form(fields)
    except BadRequestError as error:
        assert error.param  # noqa: PT017


@pytest.mark.parametrize(
    ("said", "clips"),
    [("", ()), ("0", (0,)), ("10,20, 65.5", (10, 20, 65.5)), ("1,2,2,3", (1, 2, 2, 3)), ("1,2,", (1, 2))],
)
def test_clips_are_read_as_others_write_them(said: str, clips: tuple[float, ...]) -> None:
    assert parse(("clip_timestamps", said)).options.clips == clips


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("7,3", "must rise, as start, end, start, end: 3 follows 7"),
        ("3,3", "must rise"),
        ("[1, 2]", "must be a number"),
        ("1,-2", "must be a number"),
        ("1,nan", "must be a number"),
        (",".join(map(str, range(600))), "more than 256 clips"),
    ],
)
def test_what_are_no_clips_is_refused(said: str, told: str) -> None:
    with pytest.raises(BadRequestError, match=told) as caught:
        parse(("clip_timestamps", said))
    assert caught.value.param == "clip_timestamps"


def test_clips_are_no_speech_that_was_found() -> None:
    with pytest.raises(BadRequestError, match="cannot be combined with `vad_filter`"):
        parse(("clip_timestamps", "1,2"), ("vad_filter", "true"))


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
def test_what_is_wrong_with_vllms_fields_is_named(fields: dict[str, str], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        options(**fields)
    assert caught.value.param == param


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
def test_what_is_wrong_with_subtitles_is_named(fields: list[tuple[str, str]], param: str) -> None:
    with pytest.raises(BadRequestError, match=f"`{param}`") as caught:
        parse(*fields)
    assert caught.value.param == param
