"""Everything that is counted is exported, as what it is: a counter, or a gauge of now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import trio
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from sensorium.actors.calls.callback_queue import PostingStatistics
from sensorium.actors.fetching.fetcher import FetchStatistics
from sensorium.actors.live.container_decoder import SoundStatistics
from sensorium.actors.media_decoding.cache import MediaCacheStatistics
from sensorium.actors.media_decoding.worker_pool import DecoderPool, MediaStatistics
from sensorium.actors.replicas.metrics import register_replicas
from sensorium.actors.runtime.actor import InboxStatistics
from sensorium.actors.speech.statistics import SpeechCounts
from sensorium.actors.telemetry.collectors import (
    BY_SERVICE,
    ENGINE,
    FETCHES,
    INBOX,
    MEDIA,
    MEDIA_CACHE,
    POSTING,
    SOUND,
    TIMES,
)
from sensorium.actors.telemetry.metrics import Metrics
from sensorium.actors.telemetry.statistics import ConnectionStatistics
from sensorium.protocols.engine.messages import Service
from sensorium.protocols.engine.statistics import GAUGES, EngineStatistics, RequestTimes
from support.fake_engine import make_fake_engine, request, run_whole
from trio.testing import MockClock


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (
            ENGINE | {f"{field}_{service}": "" for field in BY_SERVICE for service in get_args(Service)},
            [name for name in EngineStatistics.__struct_fields__ if not name.startswith("times_")],
        ),
        (TIMES, RequestTimes.__struct_fields__),
        (INBOX, [field.name for field in fields(InboxStatistics) if field.name not in ("name", "capacity")]),
        (MEDIA, [field.name for field in fields(MediaStatistics)]),
        (SOUND, [field.name for field in fields(SoundStatistics)]),
    ],
)
def test_every_field_has_a_name(names: Mapping[str, object], counted: list[str]) -> None:
    assert set(names) == set(counted)


def test_gauges_are_gauges_and_counters_count() -> None:
    assert {"num_running_live", "cache_bytes"} <= GAUGES
    assert not {"num_steps", "busy_s", "num_restarts"} & GAUGES
    metrics = Metrics()
    metrics.add_engine("m", EngineStatistics, lambda: [InboxStatistics("scheduler", 9, 1, 2, 3, 4)])
    metrics.add(MEDIA, MediaStatistics)
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
    metrics.add_engine("fake", engine.statistics, engine.inboxes, kv_dtype="int8")
    metrics.add(MEDIA, DecoderPool().handle.statistics)
    assert value(metrics, "sensorium_inbox_depth", model="fake", actor="scheduler") is None, "not running yet"
    await nursery.start(engine.run)
    await run_whole(engine, request("a", max_tokens=5))
    assert value(metrics, "sensorium_kv_info", model="fake", dtype="int8") == 1
    num_steps = engine.statistics().num_steps
    assert value(metrics, "sensorium_engine_steps_total", model="fake") == num_steps > 0
    assert value(metrics, "sensorium_engine_restarts_total", model="fake") == 0
    for actor in ("executor", "scheduler", "detokenizer"):
        taken = value(metrics, "sensorium_inbox_messages_total", model="fake", actor=actor)
        assert taken is not None
        assert taken > 0
        assert value(metrics, "sensorium_inbox_refused_total", model="fake", actor=actor) == 0
    assert value(metrics, "sensorium_media_files_total") == 0
    assert b"sensorium_inbox_depth" in b"".join(metrics.parts())


async def test_a_scrape_tells_how_long_requests_took(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    engine, metrics = make_fake_engine(), Metrics()
    metrics.add_engine("fake", engine.statistics)
    await nursery.start(engine.run)
    for number in range(3):
        await run_whole(engine, request(f"r{number}", max_tokens=5))
    of = {"model": "fake", "service": "interactive"}
    for name in ("queue", "time_to_first_token", "engine_request"):
        assert value(metrics, f"sensorium_{name}_seconds_count", **of) == 3, name
    assert value(metrics, "sensorium_inter_token_seconds_count", **of) == 3 * 4
    assert value(metrics, "sensorium_request_output_tokens_sum", **of) == 3 * 5
    assert value(metrics, "sensorium_request_prompt_tokens_bucket", **of, le="+Inf") == 3
    assert value(metrics, "sensorium_queue_seconds_count", model="fake", service="live") == 0


def test_a_scrape_comes_metric_by_metric() -> None:
    """So that the loop is others' in between; joined it is what the library gives."""
    metrics = full()
    parts = [part.decode() for part in metrics.parts()]
    assert all(part.count("# TYPE") == 1 for part in parts)
    assert len(parts) > 100
    whole = generate_latest(metrics.registry).decode()
    names = [line.split()[0] for line in whole.splitlines()]
    assert [line.split()[0] for part in parts for line in part.splitlines()] == names


def test_a_metric_of_many_labels_comes_in_portions() -> None:
    metrics = Metrics()
    for number in range(40):
        metrics.request_duration.labels(f"/v1/{number}").observe(1.0)
        metrics.requests.labels(f"/v1/{number}", "200").inc(number)
    parts = list(metrics.parts())
    assert max(part.count(b"\n") for part in parts) < 110
    its = [part for part in parts if b"sensorium_request_duration_seconds" in part]
    assert len(its) > 5
    assert b"".join(its) == generate_latest(metrics.request_duration)


def test_names_are_as_promtool_would_have_them() -> None:
    """The rules of `promtool check metrics`, over everything a server can export."""
    text = b"".join(full().parts()).decode()
    families = list(text_string_to_metric_families(text))
    for family in families:
        exported = f"{family.name}_total" if family.type == "counter" else family.name
        assert family.documentation or family.name.startswith("python_"), f"{exported} has no help"
        assert exported.endswith("_total") == (family.type == "counter"), exported
        assert re.fullmatch(r"[a-z][a-z0-9_]*", exported), exported
        words = exported.split("_")
        assert not {"gauge", "counter", "histogram", "summary"} & {*words}, exported
        assert not {"s", "ms", "mb", "kb", "mib", "milliseconds", "megabytes", "percent"} & {*words}, exported
        if family.type != "histogram":
            assert words[-1] not in ("count", "sum", "bucket", "created"), exported
            assert not any("le" in sample.labels for sample in family.samples), exported
        for unit in ("seconds", "bytes"):
            assert unit not in words or words[-1] in (unit, "total", "info"), (
                f"{exported}: its unit comes last"
            )
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert {"process_resident_memory_bytes", "process_open_fds", "python_info"} <= set(names)


def test_the_manual_names_every_metric() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "operate.md").read_text()
    named = set(re.findall(r"^\| `(sensorium_\w+)", manual, re.MULTILINE))
    replicas = Metrics()
    register_replicas(replicas.registry, (), ())
    exported = {
        f"{each.name}_total" if each.type == "counter" else each.name
        for metrics in (full(), replicas)
        for each in metrics.registry.collect()
    }
    assert named == {name for name in exported if name.startswith("sensorium_")}


def full() -> Metrics:
    """With one of everything, counted at least once."""
    metrics = Metrics()
    metrics.add(SOUND, SoundStatistics)
    metrics.add(POSTING, PostingStatistics)
    metrics.add(FETCHES, FetchStatistics)
    metrics.add(MEDIA_CACHE, MediaCacheStatistics)
    metrics.add_engine("m", EngineStatistics, lambda: [InboxStatistics("scheduler", 9, 1, 2, 3, 4)])
    metrics.add_speech("m", SpeechCounts().statistics)
    metrics.add_process(os.getpid, lambda: 1)
    metrics.add(MEDIA, MediaStatistics)
    metrics.add_connections(ConnectionStatistics, lambda: {431: 1})
    metrics.requests.labels("/health", "200").inc()
    metrics.request_duration.labels("/health").observe(0.1)
    metrics.sessions.labels("1000").inc()
    metrics.audio_seconds.labels("file").inc()
    metrics.mcp_calls.labels("https://mcp.test/mcp", "tools/call", "ok").inc()
    metrics.mcp_seconds.labels("https://mcp.test/mcp", "tools/call").observe(0.1)
    return metrics


def collected(metrics: Metrics) -> Iterator[Metric]:
    return iter(metrics.registry.collect())


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)
