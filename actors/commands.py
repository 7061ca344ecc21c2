"""The command line: `sensorium serve`, `models` and others, and the commands of the client.

The client's commands live in `client/cli/commands.py` and are mounted here. Options of `serve` are the fields
of `actors/config/server.py`; each is also a `SENSORIUM_…` environment variable. Every option of every command
may be in the TOML file that `--config` names (`actors/config/toml_file.py`). This is the only file of the
server that reads the environment.
"""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_type_hints

import msgspec
import trio
from cyclopts import App, Parameter
from cyclopts.config import Dict, Env

from ..client.cli import commands as client_commands
from ..client.terminal import fail, write
from ..protocols.errors import DeviceLostError, SensoriumError
from ..protocols.shared.foreign_options import meant
from .cluster.command import cluster
from .command_options import DEFAULTS, FLAT
from .config.engine import Dtype, Quantization
from .config.foreign_options import refuse_others
from .config.server import (
    DEFAULT_MODELS,
    CallConfig,
    EngineConfig,
    FetchConfig,
    FileConfig,
    ListenConfig,
    McpConfig,
    ProcessConfig,
    RealtimeConfig,
    ResponseConfig,
    ServerConfig,
)
from .config.toml_file import FileOptions, read_options
from .config.validation import is_whole
from .errors import AddressError, ConfigError
from .gateway.command import gateway
from .importing import importing
from .nodes.command import engine
from .runtime.nursery import first_error
from .runtime.stop_signals import watch_signals
from .signals import LeavingAtOnce
from .telemetry.logs import LogConfig, configure, flush, print_line

if TYPE_CHECKING:
    from .replicas.processes import ModelProcesses

_WITH_VARIABLES: Final = ("serve", "gateway")
"""Commands whose options may be variables."""
_ENVIRONMENT: Final = Env("SENSORIUM_", command=False)
_OF_CLIENTS: Final = ("SENSORIUM_BASE_URL", "SENSORIUM_CLIENT_API_KEY")
_OF_KUBERNETES: Final = re.compile(r"SENSORIUM_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT(_\d+_\w+)?)")
"""What tells pods of services whose names begin with ours."""

app = App(
    name="sensorium",
    help="Realtime multimodal inference: audio and vision stream in, text streams out.",
    config=[_ENVIRONMENT],
    default_parameter=Parameter(negative=()),
)
client_commands.mount(app)
app.register_install_completion_command()


def run(tokens: Sequence[str]) -> int:
    """Run one command line; the exit code. Faults of a person's making are one line on stderr."""
    _ignore_kubernetes()
    try:
        result = app.meta(_config_first(tokens), result_action="return_value")
    except (ConfigError, SensoriumError) as error:
        fail(error)
        return 1
    except (KeyboardInterrupt, BaseExceptionGroup) as error:
        if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt) is None:
            raise
        return 130
    return result if isinstance(result, int) else 0


def _config_first(tokens: Sequence[str]) -> list[str]:
    """`--config FILE` before the command: behind it, one that takes files would take it for one."""
    for place, token in enumerate(tokens):
        if token == "--config" or token.startswith("--config="):
            end = place + (2 if token == "--config" else 1)
            return [*tokens[place:end], *tokens[:place], *tokens[end:]]
    return list(tokens)


def _ignore_kubernetes() -> None:
    """Where a Kubernetes service is called sensorium, each pod is told its address in a variable of ours."""
    value = os.environ.get("SENSORIUM_PORT", "")
    if "://" in value:
        fail(f"SENSORIUM_PORT is {value!r}, not a port; it is ignored")
        del os.environ["SENSORIUM_PORT"]


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Path | None = None,
) -> object:
    """Run a command.

    Parameters
    ----------
    config
        TOML file with options of the command, as `port = 8000`, or of several commands under tables, as
        `[transcribe]`.
    """
    command = tokens[0] if tokens else ""
    configured = FileOptions()
    # The SDK reads its own variables: those of a server are not to change what a client does.
    app.config = [_ENVIRONMENT] if command in _WITH_VARIABLES else []
    _check_command(command)
    tokens = _with_joined_booleans(command, tokens)
    _refuse_fractions(command, tokens)
    if command in _WITH_VARIABLES:
        _refuse_empty(command, tokens)
    if command == "serve":
        refuse_others(tokens)
        _report_unknown()
    if config is not None and tokens:
        configured = read_options(config, command, _known_options(), get_type_hints(EngineConfig))
        app.config = [*app.config, Dict({command: configured.own}, source=str(config))]
    if not configured.models:
        return app(tokens, result_action="return_value")
    _, bound, _ = app.parse_args(tokens)
    return serve(*bound.args, **bound.kwargs, model_tables=configured.models)


def _check_command(command: str) -> None:
    """Raises ConfigError for a command that there is not. The parser's own list of them ends in dots."""
    known = [name for name in app.resolved_commands() if not name.startswith("-")]
    if command and not command.startswith("-") and command not in known:
        hint = meant(command, known, {}).replace("`", "") or "."
        raise ConfigError(f"there is no command {command!r}{hint} The commands are: {', '.join(known)}")


def _with_joined_booleans(command: str, tokens: Sequence[str]) -> tuple[str, ...]:
    """`--vad_filter True`, as the commands of Whisper's other programs have it, as `--vad_filter=True`."""
    joined: list[str] = []
    for token in tokens:
        option = joined[-1] if joined else ""
        name = option.removeprefix("--").replace("-", "_")
        is_value = option.startswith("--") and token in ("True", "False")
        kind = _known_options().get(command, {}).get(name) if is_value else None
        if bool in (kind, *get_args(kind)):
            joined[-1] = f"{option}={token}"
        else:
            joined.append(token)
    return tuple(joined)


def _refuse_empty(command: str, tokens: Sequence[str]) -> None:
    """Raises ConfigError for what somebody's script has not filled in, on the command line and in variables.

    Read as if it were nothing, it would open what a key closes; read as a path, it is the working folder.
    """
    positional = "MODEL" if command == "serve" else "SERVER"
    for before, token in zip((positional, *tokens), tokens, strict=False):
        if not token or re.fullmatch(r"--[a-z_-]+=", token):
            name = token.rstrip("=") or (before if before.startswith("--") else positional)
            raise ConfigError(f"{name} is ''; allowed: a text that is not empty")
    for option, kind in _known_options()[command].items():
        variable = f"SENSORIUM_{option.upper()}"
        configured = os.environ.get(variable)
        if configured is not None and not configured.strip():
            raise ConfigError(f"{variable} is ''; allowed: a text that is not empty, or no such variable")
        folders = configured.split(os.pathsep) if configured is not None and "Path" in str(kind) else ()
        if any(not each.strip() or re.search(r"""[\[,]\s*(""|'')""", each) for each in folders):
            raise ConfigError(f"{variable} is {configured!r}; allowed: paths that are not empty")


def _refuse_fractions(command: str, tokens: Sequence[str]) -> None:
    """Raises ConfigError for a part of a whole number: cyclopts rounds it, and 0 is often no limit."""
    configured = list(os.environ.items()) if command in _WITH_VARIABLES else []
    for token, after in zip(tokens, (*tokens, "")[1:], strict=True):
        option, equals, value = token.partition("=")
        configured.append((option, value if equals else after))
    doubtful = [each for each in configured if "." in each[1] and each[0].startswith(("--", "SENSORIUM_"))]
    known = _known_options().get(command, {}) if doubtful else {}
    for name, value in doubtful:
        option = re.sub("^(--|SENSORIUM_)", "", name).replace("-", "_").lower()
        if is_whole(known.get(option)):
            raise ConfigError(f"{name} is {value!r}; allowed: a whole number")


def _report_unknown() -> None:
    """Say which variables are nobody's: one of them may have been meant to ask for a key."""
    options = (each for command in _WITH_VARIABLES for each in _known_options()[command])
    own = {f"SENSORIUM_{each.upper()}" for each in ("config", *options)}
    for name in sorted(os.environ.keys() - own - {*_OF_CLIENTS}):
        if name.startswith("SENSORIUM_") and not _OF_KUBERNETES.fullmatch(name):
            fail(f"{name} is not an option; it is ignored")


@cache
def _known_options() -> dict[str, dict[str, Any]]:
    """Every command's options as a file has them, and their types. Finding them takes 60 ms."""
    return {
        name: {
            argument.name.strip("-").replace("-", "_").lower(): argument.hint
            for argument in app[name].assemble_argument_collection()
            if argument.name.startswith("--") and argument.parse
        }
        for name in app.resolved_commands()
        if not name.startswith("-")
    }


@app.command
def serve(
    models: tuple[str, ...] = (),
    *,
    served_model_name: tuple[str, ...] = (),
    alias: tuple[str, ...] = (),
    console: Annotated[bool, Parameter(negative="--no-console")] = True,
    open_console: Annotated[bool, Parameter(name="--open")] = False,
    model: tuple[str, ...] = (),
    model_tables: Annotated[tuple[str, ...], Parameter(parse=False)] = (),
    listen: Annotated[ListenConfig, FLAT] = DEFAULTS.listen,
    engine: Annotated[EngineConfig, FLAT] = DEFAULTS.engine,
    process: Annotated[ProcessConfig, FLAT] = DEFAULTS.process,
    files: Annotated[FileConfig, FLAT] = DEFAULTS.files,
    fetch: Annotated[FetchConfig, FLAT] = DEFAULTS.fetch,
    realtime: Annotated[RealtimeConfig, FLAT] = DEFAULTS.realtime,
    calls: Annotated[CallConfig, FLAT] = DEFAULTS.calls,
    responses: Annotated[ResponseConfig, FLAT] = DEFAULTS.responses,
    mcp: Annotated[McpConfig, FLAT] = DEFAULTS.mcp,
    logs: Annotated[LogConfig, FLAT] = DEFAULTS.logs,
) -> int:
    """Serve models over HTTP and WebSocket, in OpenAI's shapes.

    Prints `listening on http://HOST:PORT` when ready; stops on Ctrl-C. Every option is also an environment
    variable (`--max-sessions` is SENSORIUM_MAX_SESSIONS) and a key of the file given by `--config`. If the
    engine process dies or a GPU fails, that process is restarted. With --engine-process off, a GPU that fails
    ends the server with status 1, for a service manager to restart it.

    Examples:

        sensorium serve
        sensorium serve openai/whisper-base --port 9000 --api-key s3cret
        sensorium serve Qwen/Qwen3-VL-2B-Instruct --kv-memory 4GiB --max-context 8192
        sensorium serve tiny-whisper Qwen/Qwen3-0.6B --model tiny-whisper:kv-memory=256MiB
        sensorium serve ./my-qwen3 tiny-whisper --config server.toml

    Parameters
    ----------
    models
        Embedded names, local folders or Hugging Face ids; tiny-qwen3-vl and tiny-qwen3-asr if none are given.
    served_model_name
        Public name of a model; repeat it, once per model in the same order.
    alias
        Another name of a model, ALIAS=NAME by its public name, as whisper-1=tiny-whisper; repeat it.
    model
        Option of one model only, NAME:OPTION=VALUE by its public name, as tiny-whisper:kv-memory=1GiB; repeat
        it. Any option of how a model runs: dtype, max-context, num-threads, … In the file of --config it is a
        table: [model.tiny-whisper].
    console
        Serve the page /console to try the models in a browser.
    open_console
        Open that page in the browser of this machine once the server is ready.
    model_tables
        Those tables; `model` overrides them.
    """
    if open_console and not console:
        raise ConfigError("--open opens the page that --no-console leaves out; give one of the two")
    config = ServerConfig(
        models or DEFAULT_MODELS,
        served_model_name,
        listen,
        engine,
        files,
        realtime,
        logs,
        (*model_tables, *model),
        fetch,
        process,
        calls,
        responses,
        mcp,
        alias,
        console,
    )
    try:
        with LeavingAtOnce():
            _serve(config, opens_console=open_console)
    except BaseExceptionGroup as group:
        error = first_error(group)
        if isinstance(error, BrokenPipeError):  # nobody reads where we listen
            raise error from None
        if not isinstance(error, AddressError | ConfigError | SensoriumError):
            raise
        flush()  # what led to it stands before it
        fail(error)
        if isinstance(error, DeviceLostError):
            os._exit(1)  # as below
        return 1
    if config.process.engine_process == "off":
        flush()
        os._exit(0)  # the interpreter's own end would wait for a step, or a grammar, that still goes on
    return 0


def _serve(config: ServerConfig, *, opens_console: bool) -> None:
    configure(config.logs)
    # Imported late: the other commands, and a wrong option, need none of it.
    from .replicas.selection import model_processes

    processes = model_processes(config) if config.process.engine_process == "on" else None
    with nullcontext() if processes is None else processes.begun():
        with importing():
            if processes is None:  # torch, too: while the loop imports it no signal would be heard
                from . import model_loading as models  # noqa: F401
            from .first_steps import open_page
            from .server import serve as serve_forever  # takes a second, in which the models' process loads

        async def run_until_signal() -> None:
            ready, stop = trio.Event(), trio.Event()

            def announce(url: str) -> None:
                # What models brought stays; a full collection that looks through it holds the loop for long.
                gc.collect()
                gc.freeze()
                print_line(f"listening on {url}")
                ready.set()
                if opens_console:
                    open_page(url)

            async with trio.open_nursery() as nursery:
                await nursery.start(watch_signals, ready, stop, nursery.cancel_scope)
                if processes is not None:
                    nursery.start_soon(_replace_on_signal, ready, processes, config.listen.drain_s)
                await serve_forever(config, stop=stop, on_ready=announce, processes=processes)
                nursery.cancel_scope.cancel()

        trio.run(run_until_signal)


app.command(gateway)
app.command(engine, default_parameter=Parameter(negative=()))
app.command(cluster, default_parameter=Parameter(negative=()))


@app.command(default_parameter=Parameter(negative=(), show_env_var=False))
def models(
    model: str = "",
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    dtype: Dtype = "auto",
    quantization: Quantization = "none",
    json: bool = False,
) -> int:
    """List the embedded models, or those of a server, or report how a folder would be served.

    The report of a folder reads no weights. It names the code that would run the model, its abilities and the
    memory it would take on this machine, or the reason for a refusal, with exit status 1.

    Examples:

        sensorium models
        sensorium models --base-url http://127.0.0.1:8000
        sensorium models ./gemma-3-270m --json

    Parameters
    ----------
    model
        Local folder, embedded name or Hugging Face id that would be served.
    base_url
        Address of a server.
    api_key
        Key for the server: SENSORIUM_CLIENT_API_KEY if not given.
    dtype
        Data type of a folder's weights, as for serve.
    quantization
        Weight-only quantization of a folder, as for serve.
    json
        Report a folder as one JSON object.
    """
    if model:
        return _report_folder(model, EngineConfig(dtype=dtype, quantization=quantization), as_json=json)
    if base_url is not None:
        return client_commands.models(base_url, api_key)
    with LeavingAtOnce(), importing():
        from ..engine.models.embedded import NOT_INSTALLED, embedded_models
        from ..engine.models.registry import open_model

    if not embedded_models():
        fail(NOT_INSTALLED)
        return 1
    for name in embedded_models():
        info = open_model(name, device="cpu", dtype="float32").info
        size_mb = sum(path.stat().st_size for path in info.folder.glob("*.safetensors")) / 1e6
        print(f"{name}: {info.describe()} · {size_mb:.1f} MB")
    return 0


def _report_folder(model: str, config: EngineConfig, *, as_json: bool) -> int:
    """0 if it would be served."""
    with LeavingAtOnce(), importing():
        from .folder_report import lines_of, report_folder

    report = report_folder(model, config)
    if as_json:
        write(msgspec.json.encode(report).decode())
    else:
        for line in lines_of(report):
            write(line)
    return 0 if report.served else 1


@app.command(default_parameter=Parameter(negative=(), show_env_var=False))
def kernels(
    model: str,
    *,
    dtype: Dtype = "auto",
    quantization: Quantization = "none",
    num_threads: int = 0,
    pin: str = "",
    table: Path | None = None,
    save: Path | None = None,
) -> int:
    """Measure the kernels of a model on this CPU, and show which are used.

    The measurements are kept: servers on this machine use them from then on.

    Examples:

        sensorium kernels Qwen/Qwen3-0.6B
        sensorium kernels Qwen/Qwen3-0.6B --save kernels.json
        sensorium serve Qwen/Qwen3-0.6B --kernels kernels.json

    Parameters
    ----------
    model
        Embedded name, local folder or Hugging Face id.
    dtype
        Data type, as for serve.
    quantization
        Weight-only quantization, as for serve.
    num_threads
        Threads for tensor operations, as for serve.
    pin
        Force implementations, as linear=onednn or linear=c,attention=fused.
    table
        Use the choices of this file, which another run saved on a machine of the same kind.
    save
        Write the choices to this file, for `sensorium serve --kernels`.
    """
    config = EngineConfig(
        device="cpu",
        dtype=dtype,
        quantization=quantization,
        num_threads=num_threads,
        kernels="auto" if table is None else str(table),
        pin_kernels=pin,
    )
    with LeavingAtOnce():
        from .kernel_choices import show_kernels

    for line in show_kernels(model, config, save):
        write(line)
    return 0


async def _replace_on_signal(ready: trio.Event, processes: ModelProcesses, drain_s: float) -> None:
    """SIGUSR1 replaces the processes that run the models, one after the other."""
    with trio.open_signal_receiver(signal.SIGUSR1) as signals:
        async for _ in signals:
            if ready.is_set():
                await processes.replace_all(drain_s)
