"""An engine for tests that any engine must pass."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from sensorium.actors.inference.client import EngineClient
from support.fake_engine import expect_all_free, make_fake_engine, make_scheduler_config
from support.remote_engine import Connection


@pytest.fixture(params=["one plan", "two plans", "remote"])
async def engine(nursery: trio.Nursery, request: pytest.FixtureRequest) -> AsyncIterator[EngineClient]:
    """A ready engine with one or two plans in flight, or behind a wire; afterwards nothing is held."""
    num_plans = 2 if request.param == "two plans" else 1
    here = make_fake_engine(config=make_scheduler_config(plans_in_flight=num_plans))
    await nursery.start(here.run)
    if request.param == "remote":
        connection = Connection(here)
        await nursery.start(connection.run)
        yield connection.remote
        await expect_all_free(connection.remote)
    else:
        yield here
    await expect_all_free(here)
