"""One Chromium and two servers for all browser tests: starting these costs more than most of the tests.

The microphone says a sentence once, each time it is opened; the camera shows three shapes. The tests run one
after the other: sound is played in real time, and a busy machine drops some of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from sensorium.actors.config.server import DEFAULT_MODELS, ListenConfig, RealtimeConfig
from support.browser import DATA, WAIT_MS, chromium, delayed, write_film
from support.embedding_site import API_KEY, EmbeddingSite, embedding_site
from support.server import Server, make_config, running_server

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="session")
def other_site() -> Iterator[EmbeddingSite]:
    """A site of another origin, which both servers allow."""
    with embedding_site() as served:
        yield served


@pytest.fixture(scope="session")
def console(other_site: EmbeddingSite) -> Iterator[Server]:
    """A server of one model that transcribes and one that sees, which keeps lost sessions for long."""
    realtime = RealtimeConfig(resume_grace_s=20.0)
    listen = ListenConfig(port=0, drain_s=5.0, allowed_origins=(other_site.url,))
    with running_server(make_config(*DEFAULT_MODELS, realtime=realtime, listen=listen)) as server:
        yield server


@pytest.fixture(scope="session")
def keyed(other_site: EmbeddingSite) -> Iterator[Server]:
    """A server that requires a key, and has a host name."""
    listen = ListenConfig(
        port=0,
        drain_s=5.0,
        api_key=(API_KEY,),
        allowed_hosts=("speech.test",),
        allowed_origins=(other_site.url,),
    )
    with running_server(make_config(listen=listen)) as server:
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium with both devices. A page that asks for the screen gets the tab whose title is "shapes"."""
    folder = tmp_path_factory.mktemp("devices")
    film = write_film(DATA / "shapes.png", folder / "shapes.y4m")
    speech = delayed(DATA / "kitchen_lights.wav", folder)
    with chromium(speech, film, "--auto-select-tab-capture-source-by-title=shapes") as found:
        yield found
