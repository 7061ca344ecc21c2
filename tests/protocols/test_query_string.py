"""Options in addresses, and paths that are not served: none is dropped in silence, and the way is named."""

from __future__ import annotations

import re

import pytest
from sensorium.actors.http.dialects import DIALECTS
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.query_string import check_body_address, check_session_address
from sensorium.protocols.realtime.operations import REALTIME_QUERY
from sensorium.protocols.responses.operations import ITEMS_QUERY
from sensorium.protocols.shared.route_hints import hint


@pytest.mark.parametrize("name", ["temperature", "model", "foo", "stream"])
def test_options_of_a_body_are_refused_in_its_address(name: str) -> None:
    with pytest.raises(BadRequestError, match="fields of the JSON body") as caught:
        check_body_address([name], "/v1/completions")
    assert (caught.value.param, caught.value.code) == (name, "unknown_parameter")


def test_what_a_route_reads_and_versions_of_clients_pass() -> None:
    check_body_address(["limit", "order", "api-version"], "/v1/responses/{id}/input_items", ITEMS_QUERY)
    check_body_address(["beta"], "/v1/messages")
    check_session_address(["model", "intent", "api-version"], REALTIME_QUERY)
    with pytest.raises(BadRequestError, match="allowed there: after, limit, order, include"):
        check_body_address(["size"], "/v1/responses/{id}/input_items", ITEMS_QUERY)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("language", "session.audio.input.transcription.language"),
        ("delay", "session.audio.input.transcription.delay"),
        ("turn_detection", "session.audio.input.turn_detection"),
        ("instructions", "session.instructions"),
    ],
)
def test_a_setting_in_the_address_of_a_session_is_refused_with_its_place(name: str, place: str) -> None:
    with pytest.raises(BadRequestError, match=re.escape(f"send it as `{place}` of a `session.update`")):
        check_session_address(["model", name], REALTIME_QUERY)
    with pytest.raises(BadRequestError, match="allowed: model, intent"):
        check_session_address(["foo"], REALTIME_QUERY)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/asr", "Use /v1/audio/transcriptions."),
        ("/inference", "Use /v1/audio/transcriptions."),
        ("/v1/listen", "Use /v1/audio/transcriptions."),
        ("/v1/speech-to-text", "Use /v1/audio/transcriptions."),
        ("/v1/realtime/sessions", "Use /v1/realtime/client_secrets."),
        ("/v1/realtime/transcription_sessions", "Use /v1/realtime/client_secrets."),
        ("/v1/engines/davinci/completions", "Did you mean /v1/completions?"),
        ("/api/generate", "Use /v1/completions."),
        ("/api/chat", "Use /v1/chat/completions."),
        ("/v1/threads/thread_1/runs", "Use /v1/responses."),
        ("/v1/audio/speech", "Here speech is not synthesized."),
        ("/v1/score", "Here scores are not computed."),
        ("/v1/images/generations", "Here images and videos are not made."),
        ("/v1/v1/models", "Did you mean /v1/models?"),
        ("/openai/deployments/whisper/audio/transcriptions", "Did you mean /v1/audio/transcriptions?"),
        ("/never/heard/of", "GET /docs lists those there are."),
    ],
)
def test_another_servers_path_names_the_route_to_use(path: str, expected: str) -> None:
    assert hint(path, [path for each in DIALECTS for path in each.operations.paths]) == expected


def test_a_route_that_no_model_answers_is_not_suggested() -> None:
    served = ["/health", "/v1/models", "/v1/audio/transcriptions"]
    assert hint("/v1/audio/translations", served) == "No model served here translates speech."
    assert hint("/v1/chat/completions", served) == "No model served here chats."
    assert hint("/api/generate", served).endswith("/v1/completions, and no model served here generates text.")
