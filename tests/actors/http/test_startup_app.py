"""What answers before the models are there."""

from __future__ import annotations

import httpx
import pytest
from sensorium.actors.http.startup_app import HealthApp, StartupApp
from starlette.responses import PlainTextResponse


async def get(app: StartupApp, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        return await client.get(path)


@pytest.mark.parametrize(("path", "status"), [("/live", 200), ("/ping", 200), ("/health", 503)])
async def test_probes_tell_a_process_that_loads_from_one_that_is_dead(path: str, status: int) -> None:
    answer = await get(StartupApp(), path)
    assert answer.status_code == status
    assert answer.json() == {"status": "ok" if status == 200 else "loading"}


async def test_everything_else_is_to_be_tried_again() -> None:
    answer = await get(StartupApp(), "/v1/models")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "loading"


async def test_then_the_application_takes_its_place() -> None:
    app = StartupApp()
    app.open(PlainTextResponse("here"))
    assert (await get(app, "/health")).text == "here"


@pytest.mark.parametrize(
    ("path", "status"), [("/health", 503), ("/live", 200), ("/ping", 200), ("/v1/models", 404), ("/", 404)]
)
async def test_a_port_for_probes_answers_nothing_else(path: str, status: int) -> None:
    app = HealthApp(StartupApp())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        assert (await client.get(path)).status_code == status
