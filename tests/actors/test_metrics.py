"""Everything that is counted is exported, as what it is: a counter, or a gauge of now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import get_args

import pytest
import trio
from prometheus_client.core import Metric
from sensorium.actors.kernel.actor import InboxStatistics
from sensorium.actors.media import MediaActor, MediaStatistics
from sensorium.actors.metrics import BY_SERVICE, ENGINE, INBOX, MEDIA, Metrics
from sensorium.protocols.messages import GAUGES, EngineStatistics, Service
from support.fake_engine import make_fake_engine, request
from trio.testing import MockClock


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (
            ENGINE | {f"{field}_{service}": "" for field in BY_SERVICE for service in get_args(Service)},
            EngineStatistics.__struct_fields__,
        ),
        (INBOX, [field.name for field in fields(InboxStatistics) if field.name not in ("name", "capacity")]),
        (MEDIA, [field.name for field in fields(MediaStatistics)]),
    ],
)
def test_every_field_has_a_name(names: Mapping[str, object], counted: list[str]) -> None:
    assert set(names) == set(counted)


def test_gauges_are_gauges_and_counters_count() -> None:
    assert {"num_running_live", "cache_bytes"} <= GAUGES
    assert not {"num_steps", "busy_s", "num_restarts"} & GAUGES
    metrics = Metrics()
    metrics.add_engine("m", EngineStatistics, lambda: [InboxStatistics("scheduler", 9, 1, 2, 3, 4)])
    metrics.add_media(MediaStatistics)
    kinds = {metric.name.removeprefix("sensorium_"): metric.type for metric in collected(metrics)}
    for field, (name, _) in ENGINE.items():
        assert kinds[name] == ("gauge" if field in GAUGES else "counter")
    assert (kinds["requests_running"], kinds["preemptions"]) == ("gauge", "counter")
    assert (kinds["inbox_depth"], kinds["inbox_messages"]) == ("gauge", "counter")
    assert (kinds["media_workers"], kinds["media_files"]) == ("gauge", "counter")


async def test_a_scrape_tells_what_engine_inboxes_and_decoders_did(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    engine, metrics = make_fake_engine(), Metrics()
    metrics.add_engine("fake", engine.statistics, engine.inboxes)
    metrics.add_media(MediaActor().handle.statistics)
    assert value(metrics, "sensorium_inbox_depth", model="fake", actor="scheduler") is None, "not running yet"
    await nursery.start(engine.run)
    await engine.complete(request("a", max_tokens=5))
    num_steps = engine.statistics().num_steps
    assert value(metrics, "sensorium_engine_steps_total", model="fake") == num_steps > 0
    assert value(metrics, "sensorium_engine_restarts_total", model="fake") == 0
    for actor in ("executor", "scheduler", "detokenizer"):
        taken = value(metrics, "sensorium_inbox_messages_total", model="fake", actor=actor)
        assert taken is not None
        assert taken > 0
        assert value(metrics, "sensorium_inbox_refused_total", model="fake", actor=actor) == 0
    assert value(metrics, "sensorium_media_files_total") == 0
    assert b"sensorium_inbox_depth" in metrics.render()


def collected(metrics: Metrics) -> Iterator[Metric]:
    return iter(metrics.registry.collect())


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)
