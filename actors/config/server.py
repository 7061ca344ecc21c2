"""What a server can be told, as small frozen value objects, one per room they configure.

`actors/commands.py` builds them from options, `SENSORIUM_…` variables and a TOML file (the only place where
the environment is read); nothing else in the server reads options. Each object checks itself once, when it is
made: a `ConfigError` names the option, the value and what is allowed. This file composes them; each lives in
a file beside this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..errors import ConfigError
from ..telemetry.logs import LogConfig
from .calls import CallConfig
from .engine import STEP_TIMEOUT_S, Dtype, EngineConfig, KvDtype, ProcessConfig, Quantization
from .fetching import FetchConfig
from .files import SAMPLE_BYTES_PER_S, FileConfig
from .mcp import McpConfig
from .network import ListenConfig
from .per_model import overridden, public_name, read_aliases
from .realtime import RealtimeConfig
from .responses import ResponseConfig

__all__ = [
    "DEFAULT_MODELS",
    "SAMPLE_BYTES_PER_S",
    "STEP_TIMEOUT_S",
    "CallConfig",
    "Dtype",
    "EngineConfig",
    "FetchConfig",
    "FileConfig",
    "KvDtype",
    "ListenConfig",
    "McpConfig",
    "ProcessConfig",
    "Quantization",
    "RealtimeConfig",
    "ResponseConfig",
    "ServerConfig",
]

DEFAULT_MODELS: Final = ("tiny-qwen3-vl", "tiny-qwen3-asr")
"""One that looks and chats, one that hears; each is what it is asked for where no model is named."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything a server needs to start."""

    models: tuple[str, ...] = DEFAULT_MODELS
    served_model_names: tuple[str, ...] = ()
    """Public names, one per model in order; empty: derived from the models themselves."""
    listen: ListenConfig = field(default_factory=ListenConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    files: FileConfig = field(default_factory=FileConfig)
    realtime: RealtimeConfig = field(default_factory=RealtimeConfig)
    logs: LogConfig = field(default_factory=LogConfig)
    model_options: tuple[str, ...] = ()
    """What holds for one model in place of `engine`, as NAME:OPTION=VALUE; see `engine_of`."""
    fetch: FetchConfig = field(default_factory=FetchConfig)
    process: ProcessConfig = field(default_factory=ProcessConfig)
    calls: CallConfig = field(default_factory=CallConfig)
    responses: ResponseConfig = field(default_factory=ResponseConfig)
    mcp: McpConfig = field(default_factory=McpConfig)
    alias: tuple[str, ...] = ()
    """Other names of models, as ALIAS=NAME."""
    console: bool = True
    """Serve the page in which the server is tried."""

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
            num_devices = self.engine_of(name).device.count(",") + 1
            if num_devices > self.process.replicas:
                raise ConfigError(
                    f"--device names {num_devices} GPUs and --replicas is {self.process.replicas} ({name}); "
                    f"allowed: one GPU, or --replicas {num_devices}"
                )
        self.aliases  # noqa: B018 (says what is wrong with them)

    def engine_of(self, name: str) -> EngineConfig:
        """How the model of that public name runs. Raises ConfigError."""
        try:
            return overridden(self.engine, self.model_options, name, self.public_names)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def aliases(self) -> dict[str, str]:
        """The model that each other name means. Raises ConfigError."""
        try:
            return read_aliases(self.alias, self.public_names)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def public_names(self) -> tuple[str, ...]:
        """The name of each model on the wire. A local folder is called by its last part."""
        return self.served_model_names or tuple(public_name(model) for model in self.models)


def _first_repeated(names: tuple[str, ...]) -> str:
    return next(name for name in names if names.count(name) > 1)
