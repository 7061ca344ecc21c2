"""What a server can be told, as small frozen value objects, one per room they configure.

`actors/commands.py` builds them from options, `SENSORIUM_…` variables and a TOML file (the only place where
the environment is read); nothing else in the server reads options. Each object checks itself once, when it
is made: a `ConfigError` names the option, the value and what is allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from ..engine.models.memory import MemorySize
from ..protocols.audio import INTERNAL_RATE
from ..protocols.realtime_session import Delay
from .logs import LogConfig
from .model_options import overridden
from .option_checks import ConfigError, check, memory_size
from .web_names import wrong_host, wrong_origin

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]

DEFAULT_MODEL: Final = "tiny-qwen3-asr"
STEP_TIMEOUT_S: Final = 120.0
"""The longest honest steps compile kernels on first use."""
SAMPLE_BYTES_PER_S: Final = 4 * INTERNAL_RATE
"""Of decoded audio."""
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """Where the server listens, who may come in, and how it leaves.

    Attributes
    ----------
    host
        Address to listen on.
    port
        Port to listen on; 0 takes a free one.
    api_key
        Accepted API key; repeat for several. Without one, everybody may come in.
    api_key_file
        File with one accepted API key a line (# begins a comment). It may change while the server runs.
    allowed_origins
        Origin of web pages that may use the server, as https://app.example.com; repeat for several, or * for
        every page there is. Pages of the server's own address always may.
    allowed_hosts
        Name by which the server may be called, as asr.example.com or *.example.com; repeat for several, or *
        for any. IP addresses and localhost always are. If none is given: no other name where only this
        machine reaches the server, else any name with an API key, and without one only names that public DNS
        does not have.
    drain_s
        Seconds that open turns and requests may take to finish after SIGINT or SIGTERM.
    send_timeout_s
        Seconds a client may read nothing of what we send before its connection is cut.
    keep_alive_s
        Seconds a connection may be without a request before it is closed.
    max_connections
        Connections at once, never more than the process' limit of descriptors (`ulimit -n`) allows less a
        third. One more closes the one that has been idle longest; where none is idle it is answered 503,
        all but /health. 0 takes 4096.
    max_connections_per_address
        Of them, those of one address (of IPv6: one /64). Behind a proxy all have its address: give it all of
        max_connections then. 0 takes half of them.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: tuple[str, ...] = ()
    api_key_file: Path | None = None
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    drain_s: float = 10.0
    send_timeout_s: float = 10.0
    keep_alive_s: float = 30.0
    max_connections: int = 0
    max_connections_per_address: int = 0

    def __post_init__(self) -> None:
        check("port", self.port, 0, 65_535)
        check("keep_alive_s", self.keep_alive_s, 0.1)
        check("max_connections", self.max_connections, 0)
        check("max_connections_per_address", self.max_connections_per_address, 0)
        check("drain_s", self.drain_s, 0)
        check("send_timeout_s", self.send_timeout_s, 0.1)
        if any(not key.strip() for key in self.api_key):
            raise ConfigError("--api-key is ''; allowed: a text that is not empty")
        if wrong := wrong_origin(self.allowed_origins) or wrong_host(self.allowed_hosts):
            raise ConfigError(wrong)

    @property
    def needs_key(self) -> bool:
        """Whether only who shows a key may come in."""
        return bool(self.api_key) or self.api_key_file is not None


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How one model runs. Holds for each served model, unless --model says else for one.

    Attributes
    ----------
    device
        Where to compute. auto: cuda if there is one, else cpu.
    dtype
        Number format of weights and computing. auto: float32 for embedded models (too small to gain
        from less), else bfloat16 where the device computes in it, else float32.
    num_threads
        Threads for tensor work on a CPU; 0 takes all cores (one for embedded models, whose matrices are
        too small to share).
    kv_memory
        Memory for keys and values: a size as 2GiB, or a share, 0 to 1, of what is free beside weights and
        encoder cache. auto: for all models together 0.9 on a GPU; on a CPU 0.25, for each at most what
        max_running requests of full context need, and up to 0.5 where one would not fit else. On a CPU it is
        taken as it is used.
    num_blocks
        Blocks of key-value memory, in place of kv_memory; 0 leaves it to that.
    block_size
        Tokens per block.
    max_context
        Tokens of prompt and answer together; 0 takes the model's own limit. Less lets more requests fit.
    encoder_memory
        Memory for encoded audio and images, in use or for reuse: a size or a share. auto: 0.1, at most 1GiB.
    max_running
        Requests decoded together; 0 takes 64 on a CPU, 256 on a GPU.
    max_waiting
        Requests that may wait for the engine before new ones are refused with 503.
    plans_in_flight
        Steps given to the device at once: with 2 the next is planned while one runs. 0 takes 1 on a CPU, 2 on
        a GPU.
    ngram_drafts
        Tokens of text answers to guess at each step, by looking up in prompt and answer what followed the
        newest ones before; the same forward verifies them, so answers do not change. Worth it where answers
        repeat their prompt (code to edit, text to quote); 0 guesses nothing.
    cuda_graphs
        Record decode steps as CUDA graphs at start, and replay them: less host work per step, some GPU memory
        beside kv_memory, a longer start. Qwen3 models on a GPU; others are refused.
    generation_config
        How text is sampled where a request does not say. auto: as the checkpoint's generation_config.json
        does; none: without it, as OpenAI's defaults.
    max_logprob_entries
        Log-probabilities one request may be answered with: alternatives, prompt and all its answers together.
        Each is some 100 bytes of JSON.
    step_timeout_s
        Seconds one step may take before the device counts as hung and the model is started again.
    """

    device: Device = "auto"
    dtype: Dtype = "auto"
    num_threads: int = 0
    kv_memory: str = "auto"
    num_blocks: int = 0
    block_size: int = 16
    max_context: int = 0
    encoder_memory: str = "auto"
    max_running: int = 0
    max_waiting: int = 1024
    plans_in_flight: int = 0
    ngram_drafts: int = 0
    cuda_graphs: bool = False
    generation_config: Literal["auto", "none"] = "auto"
    max_logprob_entries: int = 300_000
    step_timeout_s: float = STEP_TIMEOUT_S

    def __post_init__(self) -> None:
        check("num_threads", self.num_threads, 0, 1024)
        check("num_blocks", self.num_blocks, 0)
        check("block_size", self.block_size, 1, 256)
        check("max_context", self.max_context, 0)
        check("max_running", self.max_running, 0, 4096)
        check("max_waiting", self.max_waiting, 1)
        check("plans_in_flight", self.plans_in_flight, 0, 2)
        check("ngram_drafts", self.ngram_drafts, 0, 64)
        check("max_logprob_entries", self.max_logprob_entries, 1)
        check("step_timeout_s", self.step_timeout_s, 0.1)
        memory_size("kv_memory", self.kv_memory)
        memory_size("encoder_memory", self.encoder_memory)

    @property
    def kv_size(self) -> MemorySize | None:
        """`kv_memory`, None for auto."""
        return memory_size("kv_memory", self.kv_memory)

    @property
    def encoder_size(self) -> MemorySize | None:
        """`encoder_memory`, None for auto."""
        return memory_size("encoder_memory", self.encoder_memory)


@dataclass(frozen=True, slots=True)
class FileConfig:
    """Bounds on uploaded files and on media in prompts.

    Attributes
    ----------
    max_upload_mib
        Largest upload, in MiB.
    max_audio_s
        Longest audio a file may decode to, in seconds.
    media_memory
        Memory that decoded audio, images and videos of all requests may take together, as 2GiB (1 h of audio
        is 230 MB, an image of 2 megapixels 48 MB). One request gets at most half; those that find too little
        left for some seconds are answered 503.
    max_image_pixels
        Larger images and video frames are made this small before they are encoded; 0 leaves that to the
        model.
    max_media_items
        Images, videos and audio clips in one prompt.
    max_clip_s
        Longest video or audio clip in a prompt, in seconds.
    decode_workers
        Files decoded at the same time, each in a process of its own.
    decode_timeout_s
        Seconds one file may take to decode before its process is killed.
    max_requests
        Requests with files or bodies over 1 MiB in hand at once; more are answered 503.
    """

    max_upload_mib: float = 25.0
    max_audio_s: float = 2 * 3600.0
    media_memory: str = "2GiB"
    max_image_pixels: int = 2**21
    max_media_items: int = 64
    max_clip_s: float = 3600.0
    decode_workers: int = 2
    decode_timeout_s: float = 60.0
    max_requests: int = 64

    def __post_init__(self) -> None:
        check("max_upload_mib", self.max_upload_mib, 0.001)
        check("max_audio_s", self.max_audio_s, 0.1)
        size = memory_size("media_memory", self.media_memory)
        if size is None or size.unit != "bytes":
            raise ConfigError(f"--media-memory is {self.media_memory!r}; allowed: a size as 2GiB or 512MiB")
        least_mib = math.ceil(2 * SAMPLE_BYTES_PER_S * self.max_audio_s / _MIB)
        if self.media_bytes < least_mib * _MIB:
            raise ConfigError(
                f"--media-memory is {self.media_memory!r}; allowed: at least {least_mib}MiB, of which one "
                f"file of --max-audio-s {self.max_audio_s:g} takes half"
            )
        if self.max_image_pixels:
            check("max_image_pixels", self.max_image_pixels, 2**16)
        check("max_media_items", self.max_media_items, 1)
        check("max_clip_s", self.max_clip_s, 0.1)
        check("decode_workers", self.decode_workers, 1, 256)
        check("decode_timeout_s", self.decode_timeout_s, 0.1)
        check("max_requests", self.max_requests, 1)

    @property
    def media_bytes(self) -> int:
        """`media_memory` in bytes."""
        return MemorySize.parse(self.media_memory).of(0)

    @property
    def max_upload_bytes(self) -> int:
        """Largest upload in bytes."""
        return int(self.max_upload_mib * _MIB)


@dataclass(frozen=True, slots=True)
class RealtimeConfig:
    """Bounds on live sessions; clients see them in `session.created`.

    Attributes
    ----------
    max_sessions
        Live sessions at once; more are refused with an error event and close code 1013.
    max_append_mib
        Largest audio in one append, in MiB.
    max_backlog_ms
        Audio that may wait for a hypothesis before appends are refused, in milliseconds.
    release_delay
        How soon the text of sessions that name no delay is released: minimal is soonest, xhigh is corrected
        least.
    force_turn_s
        Longest turn where the server finds the turns, in seconds: it is ended at a quiet place then.
    max_turn_s
        Longest turn where the client ends them, in seconds: more audio is refused then.
    max_session_s
        Longest life of one session, in seconds.
    idle_s
        Seconds without any event from the client before its session is closed.
    resume_grace_s
        Seconds a session waits for a client whose socket was lost; 0 ends it with its socket.
    max_detached
        Sessions that wait so at once, of max_sessions; with more ends, of the caller with most of them, the
        one that has waited longest.
    outbox_events
        Events that may wait for a slow reader before its session is closed.
    outbox_mib
        The same bound in MiB.
    """

    max_sessions: int = 64
    max_append_mib: float = 15.0
    max_backlog_ms: int = 300_000
    release_delay: Delay = "medium"
    force_turn_s: float = 60.0
    max_turn_s: float = 900.0
    max_session_s: float = 24 * 3600.0
    idle_s: float = 600.0
    resume_grace_s: float = 30.0
    max_detached: int = 32
    outbox_events: int = 2048
    outbox_mib: float = 4.0

    def __post_init__(self) -> None:
        check("max_sessions", self.max_sessions, 1)
        check("max_append_mib", self.max_append_mib, 0.001, 64)
        check("max_backlog_ms", self.max_backlog_ms, 1_000)
        if self.release_delay not in get_args(Delay):
            allowed = ", ".join(get_args(Delay))
            raise ConfigError(f"--release-delay is {self.release_delay!r}; allowed: {allowed}")
        check("force_turn_s", self.force_turn_s, 2)
        check("max_turn_s", self.max_turn_s, 1)
        check("max_session_s", self.max_session_s, 1)
        check("idle_s", self.idle_s, 0.1)
        check("resume_grace_s", self.resume_grace_s, 0, 3600)
        check("max_detached", self.max_detached, 1)
        check("outbox_events", self.outbox_events, 8)
        check("outbox_mib", self.outbox_mib, 0.01)

    @property
    def max_append_bytes(self) -> int:
        """Largest audio in one append, in bytes."""
        return int(self.max_append_mib * _MIB)

    @property
    def max_message_bytes(self) -> int:
        """Largest WebSocket message: the largest append as base64 inside JSON."""
        return self.max_append_bytes * 4 // 3 + 64 * 1024

    @property
    def outbox_bytes(self) -> int:
        """Bytes that may wait for a slow reader."""
        return int(self.outbox_mib * _MIB)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything a server needs to start."""

    models: tuple[str, ...] = (DEFAULT_MODEL,)
    served_model_names: tuple[str, ...] = ()
    """Public names, one per model in order; empty: derived from the models themselves."""
    listen: ListenConfig = field(default_factory=ListenConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    files: FileConfig = field(default_factory=FileConfig)
    realtime: RealtimeConfig = field(default_factory=RealtimeConfig)
    logs: LogConfig = field(default_factory=LogConfig)
    model_options: tuple[str, ...] = ()
    """What holds for one model in place of `engine`, as NAME:OPTION=VALUE; see `engine_of`."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("no model named; allowed: at least one")
        names = self.public_names
        if self.served_model_names and len(self.served_model_names) != len(self.models):
            raise ConfigError(
                f"--served-model-name was given {len(self.served_model_names)} time(s) for "
                f"{len(self.models)} model(s); allowed: once per model, in the same order"
            )
        if len(set(names)) != len(names):
            raise ConfigError(
                f"two models share the name {_first_repeated(names)!r}; give --served-model-name"
            )

        for name in names:
            self.engine_of(name)

    def engine_of(self, name: str) -> EngineConfig:
        """How the model of that public name runs. Raises ConfigError."""
        try:
            return overridden(self.engine, self.model_options, name, self.public_names)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def public_names(self) -> tuple[str, ...]:
        """The name of each model on the wire. A local folder is called by its last part."""
        return self.served_model_names or tuple(_public_name(model) for model in self.models)


def _public_name(model: str) -> str:
    is_path = model.startswith(("/", "./", "../", "~")) or model.count("/") > 1 or "\\" in model
    return model.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1] if is_path else model


def _first_repeated(names: tuple[str, ...]) -> str:
    return next(name for name in names if names.count(name) > 1)
