"""Which model answers where none is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from sensorium.actors.http.chat.text_requests import text_model
from sensorium.actors.http.service import ServedModel, Service
from sensorium.protocols.errors import BadRequestError

TRANSCRIPTION: Any = SimpleNamespace(tasks=("transcribe",))
SPEECH = ServedModel("speech", cast(Any, None), 0, transcription=TRANSCRIPTION)
TRANSCRIBING_CHAT = ServedModel(
    "hearing", cast(Any, None), 0, transcription=TRANSCRIPTION, text=cast(Any, "hearing")
)
CHAT = ServedModel("chat", cast(Any, None), 0, text=cast(Any, "chat"))
OTHER = ServedModel("other", cast(Any, None), 0, text=cast(Any, "other"))


def service(*models: ServedModel) -> Service:
    return cast(
        Service, SimpleNamespace(models={each.name: each for each in models}, model=lambda _: models[0])
    )


@pytest.mark.parametrize(
    ("models", "answers"),
    [
        ((SPEECH, TRANSCRIBING_CHAT, CHAT, OTHER), "chat"),
        ((OTHER, TRANSCRIBING_CHAT, CHAT), "other"),
        ((SPEECH, TRANSCRIBING_CHAT), "hearing"),
    ],
)
def test_models_that_transcribe_answer_only_where_there_is_no_other(
    models: tuple[ServedModel, ...], answers: str
) -> None:
    found: object = text_model(service(*models), None)
    assert found == answers


def test_without_any_it_says_so() -> None:
    with pytest.raises(BadRequestError):
        text_model(service(SPEECH), None)
