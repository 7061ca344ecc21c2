"""Text generation against `/v1/completions` and `/v1/chat/completions` of one or more servers, interleaved.

A measurement is the wall time of whole requests: a batch that makes one token each (prefill, time to first
token), the same batch with N tokens (the difference is decoding), two requests that share a prefix, two that
show the same image. So it does not depend on how a server cuts its stream. No prompt is sent twice except
where that is what is measured. Read next: `client/bench/bench.py` for what interleaving is for.
"""

from __future__ import annotations

import base64
import random
import struct
import zlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
import httpx
import msgspec

from ..errors import SDKError
from ..options import client_options
from ..requests import check_status, parse_models
from .bench import Contender, Machine, Progress, contenders, interleave, server_versions, this_machine
from .report import table
from .statistics import Summary, percentile, summarize

_TIMEOUT_S = 600.0
_FIRST_PLAIN_ID = 300
"""Prompts are ids from here up: below lie single bytes in most vocabularies, above the control tokens."""
_USUAL_VOCABULARY = 150_000
"""Where no server tells its own."""


_Note = Callable[["_Server", str, str, float], None]
_Measure = Callable[["_Server", "TextPlan", random.Random, _Note], Awaitable[None]]
_RandomBytes = Callable[[int], bytes]


class TextPlan(msgspec.Struct, frozen=True):
    """What one run is asked for; lengths are tokens. No `image_side`: no image is shown."""

    base_urls: tuple[str, ...]
    model: str | None = None
    concurrency: tuple[int, ...] = (1, 16)
    prompt_tokens: int = 128
    output_tokens: int = 64
    shared_prefix_tokens: int = 512
    prefill_tokens: int = 1024
    image_side: int = 0
    max_token_id: int | None = None
    """None: the smallest vocabulary that the servers tell."""
    num_rounds: int = 3
    seed: int | None = None
    """None: another one each run, for servers remember the prompts of the last."""
    api_key: str | None = None


class TextRow(msgspec.Struct):
    """One measured figure of one contender: a value per round."""

    contender: str
    figure: str
    unit: str
    values: list[float]


class TextResult(msgspec.Struct):
    """Everything one run measured."""

    machine: Machine
    server_versions: dict[str, str]
    rows: list[TextRow]
    failures: dict[str, int]
    """Requests that failed, per contender; what they belonged to has no value in that round."""


class _Server:
    """One contender with its connection."""

    def __init__(self, contender: Contender, model: str, client: httpx.AsyncClient) -> None:
        self.name = contender.name
        self.num_failed = 0
        self._model = model
        self._client = client

    async def complete(self, prompt: Sequence[int], num_tokens: int) -> int:
        """Generate exactly `num_tokens`, streamed; tokens the server says it read from its prefix cache."""
        return await self._post(
            "v1/completions", {"prompt": list(prompt), "ignore_eos": True, "max_tokens": num_tokens}
        )

    async def describe_image(self, image: bytes, question: str) -> int:
        """One token about an image."""
        url = "data:image/png;base64," + base64.b64encode(image).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
        messages = [{"role": "user", "content": content}]
        return await self._post("v1/chat/completions", {"messages": messages, "max_tokens": 1})

    async def _post(self, path: str, body: dict[str, object]) -> int:
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        body = {"model": self._model, "temperature": 0, **streamed, **body}
        cached = 0
        async with self._client.stream("POST", path, json=body) as response:
            if response.status_code != 200:
                raise SDKError(
                    f"{self.name}: {response.status_code} {(await response.aread()).decode()[:300]}"
                )
            async for line in response.aiter_lines():
                if '"error"' in line:
                    raise SDKError(f"{self.name}: {line[:300]}")
                if line.startswith("data: {") and '"cached_tokens"' in line:
                    usage = msgspec.json.decode(line[len("data: ") :]).get("usage") or {}
                    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return cached


async def measure_text(plan: TextPlan, progress: Progress) -> TextResult:
    """Everything the plan asks for. Raises SDKError if a server refuses or cannot be reached, ValueError if
    `max_token_id` leaves no ids to make prompts of."""
    if plan.max_token_id is not None and plan.max_token_id <= _FIRST_PLAIN_ID:
        raise ValueError(f"--max-token-id is {plan.max_token_id}; allowed: above {_FIRST_PLAIN_ID}")
    chosen = contenders(plan.base_urls or (client_options().base_url,), plan.api_key)
    randomness = random.Random(plan.seed)
    rows: dict[tuple[str, str], TextRow] = {}

    def note(server: _Server, figure: str, unit: str, value: float) -> None:
        row = rows.setdefault((figure, server.name), TextRow(server.name, figure, unit, []))
        row.values.append(value)

    clients: list[httpx.AsyncClient] = []
    try:
        servers: list[_Server] = []
        vocabularies: list[int] = []
        for contender in chosen:
            options = client_options(contender.base_url, contender.api_key)
            clients.append(
                httpx.AsyncClient(
                    base_url=options.root_url, headers=options.headers, timeout=_TIMEOUT_S, trust_env=False
                )
            )
            model, size = await _model_and_vocabulary(clients[-1], plan.model)
            servers.append(_Server(contender, model, clients[-1]))
            vocabularies += [size] if size else []
        if plan.max_token_id is None:
            plan = msgspec.structs.replace(plan, max_token_id=min(vocabularies, default=_USUAL_VOCABULARY))
        for server in servers:
            await _batch(server, _prompts(plan, randomness, 2, 32), 8)
        for round_, index in interleave(len(servers), plan.num_rounds):
            server = servers[index]
            progress(f"{server.name}: round {round_ + 1} of {plan.num_rounds}")
            measures: list[_Measure] = [
                partial(_measure_decoding, concurrency=each) for each in plan.concurrency
            ]
            measures += [_measure_prefill, _measure_prefix, *([_measure_image] if plan.image_side else [])]
            for measure in measures:
                try:
                    await measure(server, plan, randomness, note)
                except (SDKError, httpx.HTTPError) as error:
                    server.num_failed += 1
                    progress(f"{server.name}: failed: {error or type(error).__name__}")
    except httpx.HTTPError as error:
        raise SDKError(f"a server could not be reached: {error or type(error).__name__}") from error
    finally:
        for client in clients:
            with anyio.CancelScope(shield=True):
                await client.aclose()
    if not rows:
        raise SDKError("every request failed")
    failures = {server.name: server.num_failed for server in servers if server.num_failed}
    return TextResult(this_machine(), await server_versions(chosen), list(rows.values()), failures)


def text_report(result: TextResult) -> str:
    """The table: one line per figure and contender, and its ratio to the first contender's."""
    first: dict[str, float] = {}
    lines = []
    for row in sorted(result.rows, key=lambda row: row.figure):
        summary = summarize([[value] for value in row.values], lambda values: percentile(values, 50))
        base = first.setdefault(row.figure, summary.value)
        lines.append([row.figure, row.contender, _cell(summary), row.unit, f"{summary.value / base:.2f}"])
    machine = result.machine
    head = [
        f"client machine  {machine.processor}, {machine.num_cpus} CPUs, {machine.system}",
        *(f"{name:<15} {about}" for name, about in result.server_versions.items()),
        *(f"{name:<15} {count} requests failed" for name, count in result.failures.items()),
        "",
        "medians over rounds (lowest–highest); last column: relative to the first server",
        "",
    ]
    return "\n".join([*head, table(["figure", "server", "value", "unit", "ratio"], lines)])


async def _measure_decoding(
    server: _Server, plan: TextPlan, randomness: random.Random, note: _Note, *, concurrency: int
) -> None:
    prompts = _prompts(plan, randomness, concurrency, plan.prompt_tokens)
    first_s = await _batch(server, prompts, 1)
    prompts = _prompts(plan, randomness, concurrency, plan.prompt_tokens)
    whole_s = await _batch(server, prompts, plan.output_tokens)
    rate = concurrency * (plan.output_tokens - 1) / (whole_s - first_s)
    note(server, f"decode, {concurrency} at a time", "tokens/s", rate)
    total = concurrency * plan.output_tokens / whole_s
    note(server, f"whole requests, {concurrency} at a time", "tokens/s", total)


async def _measure_prefill(server: _Server, plan: TextPlan, randomness: random.Random, note: _Note) -> None:
    first_s = await _batch(server, _prompts(plan, randomness, 1, plan.prefill_tokens), 1)
    note(server, f"prefill of {plan.prefill_tokens} tokens", "tokens/s", plan.prefill_tokens / first_s)


async def _measure_prefix(server: _Server, plan: TextPlan, randomness: random.Random, note: _Note) -> None:
    prefix, one, other = (
        _prompts(plan, randomness, 1, length)[0] for length in (plan.shared_prefix_tokens, 16, 16)
    )
    first_s = await _batch(server, [[*prefix, *one]], 1)
    second_s = await _batch(server, [[*prefix, *other]], 1)
    note(server, f"shared prefix of {len(prefix)}: second / first token time", "ratio", second_s / first_s)


async def _measure_image(server: _Server, plan: TextPlan, randomness: random.Random, note: _Note) -> None:
    image = noise_png(plan.image_side, randomness.randbytes)
    times = []
    for question in ("What is this?", "And which colours has it?"):
        start = anyio.current_time()
        await server.describe_image(image, question)
        times.append(anyio.current_time() - start)
    note(server, f"image of {plan.image_side} px: first token", "ms", 1000 * times[0])
    note(server, "same image again: second / first token time", "ratio", times[1] / times[0])


def noise_png(side: int, random_bytes: _RandomBytes) -> bytes:
    """A square RGB image no server has seen before: blocks of random colours, so that it stays small."""
    cells = [[random_bytes(3) for _ in range(16)] for _ in range(16)]
    rows = b"".join(
        b"\0" + b"".join(cells[16 * y // side][16 * x // side] for x in range(side)) for y in range(side)
    )
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


async def _batch(server: _Server, prompts: Sequence[Sequence[int]], num_tokens: int) -> float:
    """Seconds from sending all prompts at once to the end of the last answer. Raises what one of them raised,
    once all have ended; the others that failed are counted."""
    errors: list[Exception] = []

    async def one(prompt: Sequence[int]) -> None:
        try:
            await server.complete(prompt, num_tokens)
        except (SDKError, httpx.HTTPError) as error:
            errors.append(error)

    start = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for prompt in prompts:
            tasks.start_soon(one, prompt)
    if errors:
        server.num_failed += len(errors) - 1
        raise errors[0]
    return anyio.current_time() - start


def _prompts(plan: TextPlan, randomness: random.Random, count: int, length: int) -> list[list[int]]:
    assert plan.max_token_id is not None
    ids = range(_FIRST_PLAIN_ID, plan.max_token_id)
    return [randomness.choices(ids, k=length) for _ in range(count)]


async def _model_and_vocabulary(client: httpx.AsyncClient, name: str | None) -> tuple[str, int | None]:
    """The model's name, of the first one if none is given, and the size of its vocabulary if it is told."""
    response = await client.get("v1/models")
    check_status(response.status_code, response.content)
    cards = parse_models(response.content)
    if name is None and not cards:
        raise SDKError(f"{client.base_url} serves no model")
    found = next((card for card in cards if name in (None, card.id)), None)
    size = None if found is None else found.vocab_size
    return name or cards[0].id, size if isinstance(size, int) else None


def _cell(summary: Summary) -> str:
    digits = 3 if summary.value < 1 else 1
    value, low, high = (f"{number:.{digits}f}" for number in (summary.value, summary.low, summary.high))
    return f"{value} ({low}–{high})"
