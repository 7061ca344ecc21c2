"""Merging updates into a session: omitted stays, null clears, refusals name the field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.realtime.codec import decode_client_event
from sensorium.protocols.realtime.events import InvalidEvent, SessionUpdate
from sensorium.protocols.realtime.session import ServerVadView, SessionPatch, TranscriptionView
from sensorium.protocols.shared.audio_format import AudioFormat, ms_to_samples
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.settings import DEFAULT_VAD, SessionSettings, initial_settings, merge
from support.dialogs import config

CONFIG = config()
INITIAL = initial_settings(CONFIG)


def shown_transcription(settings: SessionSettings) -> TranscriptionView:
    shown = settings.audio_view().input.transcription
    assert shown is not None
    return shown


def patch(audio_input: dict[str, Any] | None = None, **session: object) -> SessionPatch:
    body: dict[str, Any] = dict(session)
    if audio_input is not None:
        body["audio"] = {"input": audio_input}
    event = decode_client_event(json.dumps({"type": "session.update", "session": body}))
    assert isinstance(event, SessionUpdate), event
    assert isinstance(event.session, SessionPatch)
    return event.session


def update(settings: SessionSettings, audio_input: dict[str, Any], **session: object) -> SessionSettings:
    return merge(settings, patch(audio_input, **session), CONFIG)


def test_nothing_changes_nothing() -> None:
    for empty in (SessionPatch(), patch({}), patch(type="transcription"), patch({"transcription": {}})):
        assert merge(INITIAL, empty, CONFIG) == INITIAL


def test_what_we_show_can_be_sent_back() -> None:
    changed = update(
        INITIAL,
        {
            "format": {"type": "audio/pcm", "rate": 16000},
            "transcription": {"language": "en", "timestamp_granularities": ["word"]},
            "turn_detection": {"type": "semantic_vad", "eagerness": "low"},
            "noise_reduction": None,
        },
        include=["item.input_audio_transcription.logprobs"],
    )
    shown = {
        "id": "sess_1",
        "object": "realtime.transcription_session",
        "type": "transcription",
        "expires_at": 1,
        "limits": {"idle_s": 1},
        "capabilities": [],
        "include": changed.include_view(),
        "audio": msgspec.to_builtins(changed.audio_view()),
    }
    assert merge(changed, patch(**shown), CONFIG) == changed


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"type": "audio/pcm"}, AudioFormat("pcm16", 24_000)),
        ({"type": "audio/pcm", "rate": 16_000}, AudioFormat("pcm16", 16_000)),
        ({"type": "audio/pcmu"}, AudioFormat("pcmu", 8_000)),
        ({"type": "audio/pcma", "rate": 8_000}, AudioFormat("pcma", 8_000)),
        (None, AudioFormat("pcm16", 24_000)),
    ],
)
def test_formats(shape: dict[str, Any] | None, expected: AudioFormat) -> None:
    assert update(update(INITIAL, {"format": {"type": "audio/pcma"}}), {"format": shape}).format == expected


def test_turn_detection_merges_within_its_type_and_null_turns_it_off() -> None:
    vad = {"type": "server_vad"}
    first = update(INITIAL, {"turn_detection": {**vad, "threshold": 0.7, "silence_duration_ms": 350}})
    second = update(first, {"turn_detection": {**vad, "prefix_padding_ms": 600, "threshold": None}})
    assert second.turn_detection == ServerVadView(0.5, 600, 350)
    off = update(second, {"turn_detection": None})
    assert off.turn_detection is None
    assert update(off, {"turn_detection": vad}).turn_detection == DEFAULT_VAD


@pytest.mark.parametrize(
    ("eagerness", "silence_ms"), [("low", 1500), ("medium", 800), ("auto", 800), ("high", 400)]
)
def test_eagerness_is_a_wait_that_follows_what_was_said(eagerness: str, silence_ms: int) -> None:
    settings = update(INITIAL, {"turn_detection": {"type": "semantic_vad", "eagerness": eagerness}})
    detector = settings.detector(CONFIG, "unknown")
    assert detector.silence == ms_to_samples(silence_ms)
    assert detector.pause == ms_to_samples(200)
    finished, unfinished = settings.detector(CONFIG, "finished"), settings.detector(CONFIG, "open")
    assert finished.silence < detector.silence < unfinished.silence <= ms_to_samples(2500)
    assert finished.pause == unfinished.pause == detector.pause
    assert settings.detector(CONFIG) == unfinished, "what was said is not known yet"
    server = update(INITIAL, {"turn_detection": {"type": "server_vad"}})
    assert server.detector(CONFIG, "open") == server.detector(CONFIG, "finished") == server.detector(CONFIG)


def test_the_tail_is_never_longer_than_the_silence() -> None:
    settings = update(INITIAL, {"turn_detection": {"type": "server_vad", "silence_duration_ms": 50}})
    assert settings.detector(CONFIG).pause == settings.detector(CONFIG).silence == ms_to_samples(50)


def test_transcription_fields_merge_and_null_goes_back() -> None:
    first = update(INITIAL, {"transcription": {"model": "other", "language": "FR", "prompt": "Ça"}})
    assert (first.model, first.options.language, first.options.prompt) == ("other", "fr", "Ça")
    second = update(first, {"transcription": {"language": ""}})
    assert (second.model, second.options.language, second.options.prompt) == ("other", None, "Ça")
    assert update(second, {"transcription": None}) == INITIAL


def test_hints_and_delay_merge_like_the_other_fields() -> None:
    first = update(
        INITIAL,
        {"transcription": {"languages": ["EN", "de"], "keywords": ["Kiel ", "Jo\nJo"], "delay": "high"}},
    )
    assert (first.options.languages, first.options.keywords) == (("en", "de"), ("Kiel", "Jo Jo"))
    shown = msgspec.to_builtins(first.audio_view())["input"]["transcription"]
    assert (shown["languages"], shown["keywords"], shown["delay"]) == (
        ["en", "de"],
        ["Kiel", "Jo Jo"],
        "high",
    )
    second = update(first, {"transcription": {"keywords": [], "delay": None}})
    assert (second.options.languages, second.options.keywords, second.delay) == (("en", "de"), (), None)
    unset = msgspec.to_builtins(second.audio_view())["input"]["transcription"]
    assert "delay" not in unset, "Pipecat's sessions that answer know only model, language and prompt"
    assert first.options.keyword_boost == 2.5
    assert "keyword_boost" not in shown
    third = update(first, {"transcription": {"keyword_boost": 4}})
    assert (third.options.keywords, third.options.keyword_boost) == (("Kiel", "Jo Jo"), 4)
    assert msgspec.to_builtins(third.audio_view())["input"]["transcription"]["keyword_boost"] == 4
    assert update(third, {"transcription": {"keyword_boost": None}}) == first
    assert "keywords" not in msgspec.to_builtins(second.audio_view())["input"]["transcription"]
    assert update(second, {"transcription": {"languages": None}}) == INITIAL
    assert update(first, {"transcription": None}) == INITIAL


def test_ends_of_utterances_are_asked_for_whatever_finds_the_turns() -> None:
    first = update(INITIAL, {"transcription": {"utterance_end_ms": 1000}, "turn_detection": None})
    assert first.utterance_end_ms == 1000
    assert msgspec.to_builtins(first.audio_view())["input"]["transcription"]["utterance_end_ms"] == 1000
    second = update(first, {"turn_detection": {"type": "semantic_vad"}, "transcription": {"delay": "low"}})
    assert second.utterance_end_ms == 1000
    assert update(second, {"transcription": {"utterance_end_ms": None}}).utterance_end_ms is None
    assert update(second, {"transcription": None}).utterance_end_ms is None
    assert "utterance_end_ms" not in msgspec.to_builtins(INITIAL.audio_view())["input"]["transcription"]


@pytest.mark.parametrize("value", [499, 10_001, -1, 0, "1000", 1000.5, True])
def test_a_wait_for_the_end_of_an_utterance_that_cannot_be(value: object) -> None:
    patch = {"audio": {"input": {"transcription": {"utterance_end_ms": value}}}}
    event = decode_client_event(json.dumps({"type": "session.update", "session": patch}))
    assert isinstance(event, InvalidEvent)
    assert (event.code, event.param) == (
        "invalid_value",
        "session.audio.input.transcription.utterance_end_ms",
    )


def test_numbers_are_spelled_by_models_that_can() -> None:
    models = (RealtimeModel("plain"), RealtimeModel("speller", spells_numbers=True))
    config = SessionConfig(model="speller", models=models)
    words = patch({"transcription": {"numerals": "words"}})
    settings = merge(initial_settings(config), words, config)
    assert settings.options.numerals == shown_transcription(settings).numerals == "words"
    assert merge(settings, patch({"transcription": {"numerals": None}}), config).options.numerals is None
    with pytest.raises(BadRequestError, match="in words") as caught:
        merge(settings, patch({"transcription": {"model": "plain"}}), config)
    assert caught.value.param == "session.audio.input.transcription.numerals"


def test_numbers_are_written_in_digits_by_any_model_in_languages_whose_numbers_are_known() -> None:
    config = SessionConfig(model="plain", models=(RealtimeModel("plain"),))
    digits = patch({"transcription": {"numerals": "digits", "language": "de-AT"}})
    settings = merge(initial_settings(config), digits, config)
    assert settings.options.numerals == shown_transcription(settings).numerals == "digits"
    both = merge(settings, patch({"transcription": {"language": None, "languages": ["pl", "de"]}}), config)
    assert both.options.numerals == "digits"
    for other in ({"language": "pl"}, {"language": None, "languages": ["pl", "cs"]}):
        with pytest.raises(BadRequestError, match="in pl") as caught:
            merge(settings, patch({"transcription": other}), config)
        assert caught.value.param == "session.audio.input.transcription.numerals"


def test_what_is_spoken_is_translated_by_models_that_can() -> None:
    models = (RealtimeModel("plain"), RealtimeModel("translator", tasks=("transcribe", "translate")))
    config = SessionConfig(model="translator", models=models)
    english = patch({"transcription": {"task": "translate", "numerals": "digits", "language": "pl"}})
    settings = merge(initial_settings(config), english, config)
    assert settings.options.task == shown_transcription(settings).task == "translate"
    back = merge(settings, patch({"transcription": {"task": None, "language": None}}), config)
    assert back.options.task == "transcribe"
    assert shown_transcription(back).task is msgspec.UNSET
    with pytest.raises(BadRequestError, match="cannot translate") as caught:
        merge(settings, patch({"transcription": {"model": "plain"}}), config)
    assert caught.value.param == "session.audio.input.transcription.task"
    assert caught.value.code == "unsupported_task"


def test_a_model_is_not_chosen_with_languages_it_does_not_know() -> None:
    other = update(INITIAL, {"transcription": {"model": "other", "languages": ["en", "fr"]}})
    with pytest.raises(BadRequestError, match=r"'fr'; allowed: en, de, es$"):
        update(other, {"transcription": {"model": "small"}})


def test_session_model_names_the_transcription_model() -> None:
    assert merge(INITIAL, patch(model="other"), CONFIG).model == "other"
    both = patch({"transcription": {"model": "small"}}, model="other")
    assert merge(INITIAL, both, CONFIG).model == "small"


@pytest.mark.parametrize("kind", ["server_vad", "semantic_vad"])
def test_what_is_not_served_may_be_declined(kind: str) -> None:
    for no in (None, False):
        detection = {"type": kind, "create_response": no, "interrupt_response": no}
        assert update(INITIAL, {"turn_detection": detection}).turn_detection is not None


@pytest.mark.parametrize("value", [None, {}, {"type": None}, {"type": "near_field"}, {"strength": 0.5}])
def test_sound_is_taken_as_it_comes_whatever_noise_reduction_is_asked_for(value: object) -> None:
    settings = update(INITIAL, {"noise_reduction": value})
    assert settings == INITIAL
    assert settings.audio_view().input.noise_reduction is None


@pytest.mark.parametrize(
    ("audio_input", "session", "param", "code"),
    [
        ({"transcription": {"model": "x"}}, {}, "transcription.model", "model_not_found"),
        ({}, {"model": "x"}, "session.model", "model_not_found"),
        ({"transcription": {"language": "fr"}}, {}, "transcription.language", "unsupported_language"),
        ({"transcription": {"language": "klingon"}}, {}, "transcription.language", "invalid_value"),
        (
            {"transcription": {"languages": ["en", "fr"]}},
            {},
            "transcription.languages[1]",
            "unsupported_language",
        ),
        ({"transcription": {"languages": ["en", "e"]}}, {}, "transcription.languages[1]", "invalid_value"),
        ({"transcription": {"languages": [""]}}, {}, "transcription.languages[0]", "invalid_value"),
        ({"transcription": {"languages": ["en"] * 33}}, {}, "transcription.languages", "invalid_value"),
        ({"transcription": {"keywords": ["a", " "]}}, {}, "transcription.keywords[1]", "invalid_value"),
        ({"transcription": {"keywords": ["a" * 101]}}, {}, "transcription.keywords[0]", "invalid_value"),
        ({"transcription": {"keywords": ["a"] * 101}}, {}, "transcription.keywords", "invalid_value"),
        ({"format": {"type": "audio/pcm", "rate": 44100}}, {}, "format.rate", "invalid_value"),
        ({"format": {"type": "audio/pcmu", "rate": 16000}}, {}, "format.rate", "invalid_value"),
        ({"format": {"type": "audio/webm", "rate": 48000}}, {}, "format.rate", "invalid_value"),
        ({"format": {"type": "pcm16", "rate": 24000}}, {}, "format.type", "invalid_value"),
        (
            {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5000}},
            {},
            "turn_detection.idle_timeout_ms",
            "unsupported_parameter",
        ),
        *(
            (
                {"turn_detection": {"type": kind, f"{verb}_response": True}},
                {},
                f"turn_detection.{verb}_response",
                "unsupported_parameter",
            )
            for kind in ("server_vad", "semantic_vad")
            for verb in ("create", "interrupt")
        ),
    ],
)
def test_refusals_name_the_field(
    audio_input: dict[str, Any], session: dict[str, Any], param: str, code: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        update(INITIAL, audio_input, **session)
    expected = param if param.startswith("session.") else f"session.audio.input.{param}"
    assert (caught.value.param, caught.value.code) == (expected, code)
