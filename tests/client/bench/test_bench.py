"""The benchmark: its order, its measurements against the fake server, its report and JSON."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import msgspec
import pytest
import trio
from sensorium.client import SDKError
from sensorium.client.audio import Audio, wav_bytes
from sensorium.client.bench.bench import (
    BenchPlan,
    BenchResult,
    FilesResult,
    RealtimeResult,
    contenders,
    interleave,
    measure,
    this_machine,
)
from sensorium.client.bench.files import FilesRound
from sensorium.client.bench.realtime import GAP_S, RealtimeRound, Recording
from sensorium.client.bench.report import report, table
from sensorium.client.bench.statistics import WordErrors
from sensorium.client.bench.turns import SpokenTurn
from sensorium.client.metrics import Work
from sensorium.protocols.realtime.events import SessionUpdate
from support.fake_server import Answer, FakeDialog, serve_realtime, serve_rest

NOISE = Audio(array("h", range(16_000)).tobytes(), 16_000)


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One second of audio in which the fake hears "one two", described beside it. Streams begin nearly
    at once."""
    monkeypatch.setattr("sensorium.client.bench.realtime.STAGGER_S", 0.3)
    path = tmp_path / "talk.wav"
    path.write_bytes(wav_bytes(NOISE))
    turns = '{"turns":[{"text":"One two.","start_ms":0,"end_ms":900,"language":"en"}]}'
    path.with_suffix(".json").write_text(turns)
    return path


def test_contenders_run_in_turn() -> None:
    assert list(interleave(2, 3)) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_contenders_are_named_by_letter_and_address() -> None:
    assert [one.name for one in contenders(["http://a:1", "https://b/v1"])] == ["A a:1", "B b"]


def test_whole_passes_fill_the_time_and_no_two_are_equal() -> None:
    pcm, spoken = Recording(NOISE, (SpokenTurn("x", 100, 900),)).passes(3.0, seed=1)
    piece = len(NOISE.pcm) + round(GAP_S * 32_000)
    assert len(pcm) == 2 * piece
    assert pcm[:piece] != pcm[piece:]
    assert [(turn.start_ms, turn.end_ms) for turn in spoken] == [(100, 900), (2100, 2900)]


@pytest.mark.slow
async def test_live_sessions_are_measured(recording: Path) -> None:
    """With the options that they are asked to be opened with."""
    dialogs: list[FakeDialog] = []

    def dialog() -> FakeDialog:
        dialogs.append(FakeDialog())
        return dialogs[-1]

    with serve_realtime(dialog) as url:
        plan = BenchPlan([recording], [url], streams=[2], seconds=0.5, num_rounds=1)
        options = {"language": "en", "delay": "low", "left_context_ms": 6_000}
        result = await measure(msgspec.structs.replace(plan, **options))
    assert len(dialogs) == 3  # the first one warms up
    for each in dialogs:
        update = each.received[0]
        assert isinstance(update, SessionUpdate)
        assert msgspec.to_builtins(update.session)["audio"]["input"]["transcription"] == options
    (row,) = result.realtime
    (round_,) = row.rounds
    # The fake makes a turn of every second: the second of silence after the recording is one too.
    assert (round_.num_streams, round_.num_turns, round_.num_deltas) == (2, 4, 8)
    assert (round_.num_drops, round_.errors, round_.num_corrections) == (0, [], 0)
    assert round_.audio_s == pytest.approx(4.0)
    assert len(round_.first_partial_s) == 2
    assert all(0.4 < value < 1.0 for value in round_.first_partial_s)
    assert all(0.0 <= value < 0.2 for value in round_.final_s)
    assert all(0.05 < value < 0.5 for value in round_.after_last_word_s)
    assert round_.word_errors == WordErrors(4, 4)  # "three four" is said by nobody
    assert round_.work is None


@pytest.mark.slow
async def test_sessions_speak_the_recordings_in_turn(recording: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.wav"
    longer.write_bytes(wav_bytes(Audio(NOISE.pcm * 2, NOISE.rate)))
    with serve_realtime() as url:
        plan = BenchPlan([recording, longer], [url], streams=[3], seconds=0.5, num_rounds=1)
        result = await measure(plan)
    (round_,) = result.realtime[0].rounds
    assert round_.errors == []
    assert round_.audio_s == pytest.approx(2.0 + 3.0 + 2.0)
    assert len(round_.first_partial_s) == 1 + 3 + 1, "a turn a second where nobody knows what is said"


@pytest.mark.slow
async def test_manual_turns_are_committed_after_the_last_word(recording: Path) -> None:
    with serve_realtime() as url:
        plan = BenchPlan(
            [recording], [url], streams=[1], seconds=0.5, num_rounds=1, manual_turns=True, dialect="openai"
        )
        result = await measure(plan)
    (round_,) = result.realtime[0].rounds
    assert round_.num_drops == 0
    assert len(round_.final_s) == 2  # the turn, and what was left at the end
    assert len(round_.after_last_word_s) == 1


@pytest.mark.slow
async def test_a_session_that_breaks_is_counted_and_the_run_goes_on(recording: Path) -> None:
    dialogs = [FakeDialog(), FakeDialog(close_at_ms=700)]  # the first one warms up
    with serve_realtime(lambda: dialogs.pop(0)) as url:
        result = await measure(BenchPlan([recording], [url], streams=[1], seconds=0.5, num_rounds=1))
    (round_,) = result.realtime[0].rounds
    assert round_.num_drops == 2  # the spoken turn, and the item that never completed
    assert "code 1011" in round_.errors[0]
    assert "error ×1: the server closed the session" in report(result)


@pytest.mark.slow
async def test_a_server_that_fails_while_warming_up_ends_the_run(recording: Path) -> None:
    with (
        serve_realtime(lambda: FakeDialog(close_at_ms=100)) as url,
        pytest.raises(SDKError, match="failed while warming up: the server closed the session"),
    ):
        await measure(BenchPlan([recording], [url], streams=[1], seconds=0.5, num_rounds=1))


@pytest.mark.slow
async def test_whole_files_are_measured_and_contenders_interleaved(recording: Path) -> None:
    metrics = Answer(b"sensorium_decode_tokens_total 5\n", content_type="text/plain")
    answers = {"/v1/audio/transcriptions": Answer(b'{"text":"one too"}'), "/metrics": metrics}
    with serve_rest(answers) as (a, requests_a), serve_rest(answers) as (b, requests_b):
        plan = BenchPlan([recording], [a, b], concurrency=[2], num_requests=3, num_rounds=2)
        result = await measure(plan)
    assert [len(row.rounds) for row in result.files] == [2, 2]
    (first, _) = result.files[0].rounds
    assert len(first.latency_s) == 3
    assert first.audio_s == pytest.approx(3.0)
    assert first.word_errors == WordErrors(3, 6)
    assert first.work is not None
    posts = [request.body for request in requests_a if request.method == "POST"]
    assert len(posts) == 2 + 2 * 3  # warm-up, then two rounds
    assert len(set(posts)) == len(posts)
    assert len([request for request in requests_b if request.method == "POST"]) == 8


@pytest.mark.slow
async def test_the_result_survives_json(recording: Path) -> None:
    with serve_rest({"/v1/audio/transcriptions": Answer(b'{"text":"one two"}')}) as (url, _):
        result = await measure(BenchPlan([recording], [url], concurrency=[1], num_requests=1, num_rounds=1))
    again = msgspec.json.decode(msgspec.json.encode(result), type=BenchResult)
    assert again == result


def test_a_table_is_aligned() -> None:
    assert table(["a", "bb"], [["xxx", "1"], ["y", "22"]]).splitlines() == [
        "a    bb",
        "───  ──",
        "xxx   1",
        "y    22",
    ]


def test_the_report_names_machine_versions_spread_work_and_command() -> None:
    live = RealtimeRound(
        8,
        audio_s=10.0,
        first_partial_s=[0.2, 0.4],
        final_s=[0.05],
        sending_lag_s=[0.001],
        num_turns=2,
        num_deltas=8,
        num_corrections=1,
        word_errors=WordErrors(1, 50),
        work=Work(10.0, {"encoder tokens": 52.5}, 0.9),
    )
    calm = RealtimeRound(8, audio_s=10.0, first_partial_s=[0.1], final_s=[0.03], num_turns=1)
    whole = FilesRound(4, latency_s=[1.0, 2.0], audio_s=60.0, wall_s=2.0, errors=["x"])
    result = BenchResult(
        machine=this_machine(),
        contenders=contenders(["http://a:1"]),
        server_versions={"A a:1": "version 1.2"},
        command=["sensorium", "bench"],
        realtime=[RealtimeResult("A a:1", 8, [live, calm])],
        files=[FilesResult("A a:1", 4, [whole])],
    )
    text = report(result)
    for part in (
        "client machine",
        "version 1.2",
        "200 (100–300)",  # pooled median of 200, 400 and 100 ms; medians of the rounds
        "2.7",  # deltas per turn
        "2.00",  # WER in percent
        "52.5",
        "90%",
        "30.0",  # audio seconds per second
        "error ×1: x",
        "command: sensorium bench",
    ):
        assert part in text, part
    assert "nan" not in text


def test_this_machine_is_described() -> None:
    machine = this_machine()
    assert machine.num_cpus >= 1
    assert machine.processor


async def test_an_unreachable_server_is_said_before_any_measuring(recording: Path) -> None:
    plan = BenchPlan([recording], ["http://127.0.0.1:9"], concurrency=[1], num_requests=1, num_rounds=1)
    with trio.fail_after(10), pytest.raises(SDKError, match="no server at"):
        await measure(plan)


def test_nothing_measured_is_shown_as_nothing() -> None:
    result = RealtimeResult("A", 1, [RealtimeRound(1, errors=["down"])])
    empty = BenchResult(this_machine(), [], {}, [], realtime=[result])
    assert "–" in report(empty)
    assert math.isnan(FilesRound(1).audio_s_per_s)
