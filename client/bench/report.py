"""What `sensorium bench` prints: the machine, then aligned plain-text tables with medians and their spread.

A latency cell reads `p50 (low–high)`: the pooled percentile, and its least and greatest value in a single
round. Read next: `client/bench/bench.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ..metrics import Work, pool_work
from .bench import BenchResult, FilesResult, RealtimeResult
from .statistics import Distribution, Summary, WordErrors, distribution, percentile, summarize


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned by their widest cell; the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]
    lines = [_line(headers, widths), "  ".join("─" * width for width in widths)]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def report(result: BenchResult) -> str:
    """The whole report."""
    machine = result.machine
    parts = [
        f"client machine  {machine.processor}, {machine.num_cpus} CPUs, {machine.system}",
        f"versions        sensorium {machine.sensorium}, Python {machine.python}",
    ]
    parts += [f"{name:<15} {about}" for name, about in result.server_versions.items()]
    if result.realtime:
        parts += ["", *realtime_report(result.realtime)]
    if result.files:
        parts += ["", *files_report(result.files)]
    parts += ["", f"command: {' '.join(result.command)}"]
    return "\n".join(parts)


def realtime_report(results: Sequence[RealtimeResult]) -> list[str]:
    """Lines about paced live sessions."""
    latency_rows, quality_rows = [], []
    for result in results:
        rounds = result.rounds
        key = [result.contender, str(result.num_streams)]
        for name, field in (
            ("first partial", "first_partial_s"),
            ("final", "final_s"),
            ("after last word", "after_last_word_s"),
        ):
            values = distribution([getattr(round_, field) for round_ in rounds])
            if values.count:
                latency_rows.append([*key, name, str(values.count), *_percentiles(values)])
        lag = summarize([round_.sending_lag_s for round_ in rounds], lambda values: percentile(values, 95))
        num_turns = sum(round_.num_turns for round_ in rounds)
        quality_rows.append(
            [
                *key,
                f"{sum(round_.audio_s for round_ in rounds):.0f}",
                str(num_turns),
                _ratio(sum(round_.num_deltas for round_ in rounds), num_turns, "{:.1f}"),
                str(sum(round_.num_corrections for round_ in rounds)),
                str(sum(round_.num_drops for round_ in rounds)),
                str(sum(len(round_.errors) for round_ in rounds)),
                str(sum(round_.num_backpressure for round_ in rounds)),
                _ms(lag.value),
                _wer(round_.word_errors for round_ in rounds),
            ]
        )
    lines = ["paced live sessions: latencies in ms, pooled over turns (lowest–highest single round)", ""]
    lines += table(["server", "streams", "latency", "turns", "p50", "p95", "p99"], latency_rows).splitlines()
    headers = ["server", "streams", "audio s", "turns", "deltas/turn", "corrected", "drops", "errors"]
    lines += ["", *table([*headers, "backpressure", "send lag p95 ms", "WER %"], quality_rows).splitlines()]
    lines += _work_lines(
        (f"{result.contender}, {result.num_streams} streams", [round_.work for round_ in result.rounds])
        for result in results
    )
    return [*lines, *_error_lines(results)]


def files_report(results: Sequence[FilesResult]) -> list[str]:
    """Lines about whole files."""
    rows = []
    for result in results:
        rounds = result.rounds
        values = distribution([round_.latency_s for round_ in rounds])
        each = [round_.audio_s_per_s for round_ in rounds if round_.wall_s]
        throughput = Summary(percentile(each, 50), min(each, default=math.nan), max(each, default=math.nan))
        rows.append(
            [
                result.contender,
                str(result.concurrency),
                str(values.count),
                *_percentiles(values)[:2],
                _spread(throughput, "{:.1f}"),
                str(sum(len(round_.errors) for round_ in rounds)),
                _wer(round_.word_errors for round_ in rounds),
            ]
        )
    lines = ["whole files: latencies in ms, throughput as median round (lowest–highest single round)", ""]
    headers = ["server", "concurrency", "requests", "p50", "p95", "audio s per s", "errors", "WER %"]
    lines += table(headers, rows).splitlines()
    lines += _work_lines(
        (f"{result.contender}, {result.concurrency} at a time", [round_.work for round_ in result.rounds])
        for result in results
    )
    return [*lines, *_error_lines(results)]


def work_table(runs: Sequence[tuple[str, Work]]) -> str:
    """Engine work per second of audio, one line a run."""
    names = list(runs[0][1].per_audio_s)
    rows = []
    for label, work in runs:
        share = "–" if work.draft_accepted_share is None else f"{work.draft_accepted_share:.0%}"
        rows.append([label, *(f"{work.per_audio_s.get(name, math.nan):.3g}" for name in names), share])
    return table(["work per audio second", *names, "draft accepted"], rows)


def _work_lines(runs: Iterable[tuple[str, Sequence[Work | None]]]) -> list[str]:
    known = [(label, work) for label, works in runs if (work := pool_work(works)) is not None]
    return ["", *work_table(known).splitlines()] if known else []


def _error_lines(results: Sequence[RealtimeResult | FilesResult]) -> list[str]:
    errors = Counter(error for result in results for round_ in result.rounds for error in round_.errors)
    most = errors.most_common(5)
    return ["", *(f"error ×{count}: {error}" for error, count in most)] if most else []


def _percentiles(values: Distribution) -> list[str]:
    return [_spread(summary, "{:.0f}", 1000.0) for summary in (values.p50, values.p95, values.p99)]


def _spread(summary: Summary, form: str, scale: float = 1.0) -> str:
    value, low, high = (form.format(scale * number) for number in (summary.value, summary.low, summary.high))
    return value if low == high else f"{value} ({low}–{high})"


def _ms(seconds: float) -> str:
    return "–" if math.isnan(seconds) else f"{1000 * seconds:.1f}"


def _ratio(numerator: float, denominator: float, form: str) -> str:
    return form.format(numerator / denominator) if denominator else "–"


def _wer(errors: Iterable[WordErrors]) -> str:
    total = sum(errors, WordErrors())
    return _ratio(100 * total.errors, total.words, "{:.2f}")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *others]).rstrip()
