"""What clients of other servers send unasked is accepted where it is so here; else the way is named."""

from __future__ import annotations

import pytest
from sensorium.actors.local.speech import read_request_options
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.form import parse_transcription_form
from sensorium.protocols.transcription.form_defaults import is_done_anyway
from sensorium.protocols.transcription.transcript import Task

WHISPER_CPP = {
    "temperature": "0.0",
    "temperature_inc": "0.0",
    "response_format": "json",
    "diarize": "false",
    "tinydiarize": "false",
    "split_on_word": "false",
    "max_len": "0",
    "offset_t": "0",
    "word_thold": "0.01",
    "entropy_thold": "2.40",
    "logprob_thold": "-1.00",
    "no_speech_thold": "0.60",
    "detect_language": "false",
    "translate": "false",
}
FASTER_WHISPER: dict[str, object] = {
    "task": "transcribe",
    "log_progress": False,
    "beam_size": 5,
    "best_of": 1,
    "patience": 1,
    "length_penalty": 1,
    "repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "temperature": [0.0, 0.2],
    "compression_ratio_threshold": 2.4,
    "log_prob_threshold": -1.0,
    "no_speech_threshold": 0.6,
    "condition_on_previous_text": False,
    "initial_prompt": None,
    "prefix": None,
    "suppress_blank": True,
    "suppress_tokens": [-1],
    "without_timestamps": False,
    "word_timestamps": False,
    "multilingual": False,
    "vad_filter": False,
    "max_new_tokens": None,
    "chunk_length": None,
    "clip_timestamps": "0",
    "hallucination_silence_threshold": None,
    "language_detection_threshold": 0.5,
    "language_detection_segments": 1,
}


def refusal(fields: dict[str, str], task: Task = "transcribe") -> BadRequestError:
    with pytest.raises(BadRequestError) as caught:
        parse_transcription_form(fields.items(), task=task)
    return caught.value


def test_defaults_of_other_servers_change_nothing() -> None:
    plain = parse_transcription_form([])
    assert parse_transcription_form(WHISPER_CPP.items()) == plain
    openai = [("known_speaker_names[]", ""), ("known_speaker_references[]", ""), ("user", "me")]
    assert parse_transcription_form(openai) == plain
    assert parse_transcription_form([("beam_size", "1.0"), ("seed", "16.0")]).options.seed == 16
    found = read_request_options(FASTER_WHISPER | {"beam_size": 1, "temperature": 0.0})
    assert found == read_request_options({"clip_timestamps": "0"})


@pytest.mark.parametrize(
    ("task", "name", "said"),
    [
        ("transcribe", "task", "transcribe"),
        ("transcribe", "translate", "False"),
        ("translate", "task", "translate"),
        ("translate", "to_language", "en"),
        ("translate", "to_language", "English"),
        ("translate", "translate", "true"),
    ],
)
def test_the_task_may_be_stated(task: Task, name: str, said: str) -> None:
    assert parse_transcription_form([(name, said)], task=task) == parse_transcription_form([], task=task)


@pytest.mark.parametrize(
    ("task", "fields", "way"),
    [
        ("transcribe", {"task": "translate"}, "/v1/audio/translations"),
        ("transcribe", {"to_language": "en"}, "/v1/audio/translations"),
        ("translate", {"task": "transcribe"}, "/v1/audio/transcriptions"),
        ("translate", {"to_language": "de"}, "/v1/audio/transcriptions"),
        ("transcribe", {"diarize": "true"}, "`multichannel`"),
        ("transcribe", {"num_speakers": "2"}, "`multichannel`"),
        ("transcribe", {"token_timestamps": "true"}, "`timestamp_granularities` word"),
        ("transcribe", {"enable_timestamps": "true"}, "`timestamp_granularities` word"),
        ("transcribe", {"sample_rate": "16000"}, "`/v1/realtime`"),
        ("transcribe", {"max_completion_tokens": "5"}, "room for as much"),
        ("transcribe", {"no_speech_threshold": "0.3"}, "`vad_filter`"),
        ("transcribe", {"context_bias": "Sensorium"}, "`keywords`"),
        ("transcribe", {"suppress_tokens": "5"}, ""),
    ],
)
def test_what_is_not_done_is_refused_with_the_way_to_say_it(
    task: Task, fields: dict[str, str], way: str
) -> None:
    error = refusal(fields, task)
    assert error.param == next(iter(fields))
    assert way in error.message
    assert "did you mean" not in error.message


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("temperatur", "0.5", "temperature"),
        ("lang", "de", "language"),
        ("streem", "true", "stream"),
        ("response_fromat", "srt", "response_format"),
        ("temperatur", "true", ""),
        ("temperatur", "16000", ""),
        ("streem", "0.5", ""),
        ("response_fromat", "wav", ""),
        ("clip_timestamp", "true", ""),
        ("lang", "5", ""),
    ],
)
def test_a_suggestion_takes_the_value(name: str, value: str, meant: str) -> None:
    message = refusal({name: value}).message
    assert message.endswith(f"did you mean `{meant}`?" if meant else "is not a field of this request")


def test_numbers_are_compared_as_numbers() -> None:
    assert is_done_anyway("chunk_length", "30.0", "transcribe")
    assert not is_done_anyway("chunk_length", "15", "transcribe")
    assert not is_done_anyway("chunk_length", "nan", "transcribe")
    assert not is_done_anyway("never_heard_of", "", "transcribe")
