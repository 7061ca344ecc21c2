"""What would be served of a checkpoint, or why it would not, before any of its weights are read.

The checkpoint is opened as a server opens it: configs, tokenizer, headers of tensors and the memory there is.
`sensorium models FOLDER` shows it. Read `actors/model_loading.py` next.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ..engine.models.memory import show
from ..engine.models.source import ModelSource
from ..protocols.errors import ModelLoadError
from .config.engine import EngineConfig
from .model_loading import OpenedModel, open_engine_of, open_source
from .served_model import loaded_model


class FolderReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a checkpoint; `refused` says why it is not served, and all else is of one that is."""

    model: str
    served: bool
    refused: str = ""
    runs: str | None = None
    runs_through: str = ""
    """The same for people."""
    abilities: tuple[str, ...] = ()
    """As in `/v1/models`."""
    streams: bool = False
    """Transcribes while the sound comes, with final text."""
    dtype: str = ""
    weight_bytes: int = 0
    """In that dtype and quantization, once loaded."""
    cache_dtype: str = ""
    bytes_per_token: int = 0
    """Of keys and values, for each token of a request."""
    bytes_per_sequence: int = 0
    """Of windows and states, at most, however long a request is."""
    max_context: int = 0
    """Tokens of a prompt and its answer."""
    num_tokens: int = 0
    """Tokens of requests of that length that fit into the memory a server here would take."""
    memory: str = ""
    """What that server would log."""


def report_folder(model: str, config: EngineConfig) -> FolderReport:
    """Of an embedded name, a local folder or a Hugging Face id. Blocking."""
    try:
        source = open_source(model, config)
        return _served(source, open_engine_of(source, model, config), config)
    except ModelLoadError as error:
        return FolderReport(model=model, served=False, refused=str(error))


def _served(source: ModelSource, opened: OpenedModel, config: EngineConfig) -> FolderReport:
    loaded = loaded_model(opened.engine, opened.info, opened.side, activity=None, config=config)
    layout, memory = source.layout, opened.memory
    lasting = [group.spec.reach for group in layout.groups if group.spec.reach is not None]
    return FolderReport(
        model=opened.info.name,
        served=True,
        runs=opened.info.runs,
        runs_through=opened.info.runs_through,
        abilities=loaded.abilities,
        streams=loaded.speech is not None and bool(loaded.speech.delays),
        dtype=str(source.dtype).removeprefix("torch."),
        weight_bytes=memory.weight_bytes,
        cache_dtype=source.cache_name,
        bytes_per_token=layout.token_bytes * (len(layout.groups) - len(lasting)),
        bytes_per_sequence=layout.token_bytes * sum(lasting) + memory.state_bytes,
        max_context=memory.context,
        num_tokens=memory.num_tokens if memory.block_bytes else 0,
        memory=str(memory),
    )


def lines_of(report: FolderReport) -> Iterator[str]:
    """The same for people."""
    if not report.served:
        yield f"{report.model}: is not served: {report.refused}"
        return
    streams = ", streaming" if report.streams else ""
    yield f"{report.model}: is served through {report.runs_through}: {', '.join(report.abilities)}{streams}"
    yield f"weights: {show(report.weight_bytes)} of {report.dtype}"
    caches = []
    if report.bytes_per_token:
        caches.append(f"{report.bytes_per_token:,} bytes a token")
    if report.bytes_per_sequence:
        caches.append(f"{show(report.bytes_per_sequence)} a sequence (windows and states)")
    if caches:
        yield f"cache of {report.cache_dtype}: {' and '.join(caches)}"
    yield f"here: {report.memory}"
