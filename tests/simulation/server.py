"""The whole server on a simulated machine: all of it but sockets, weights and torch.

`actors/server.py`'s own `serve` runs: its listener is `simulation/connections.py`, its models are the
embedded checkpoints' tokenizers, templates and features in front of real engines with the fake runner, either
in the server's process or behind the real protocol of the models' process. Pools are tiny, so that requests
wait, are preempted and evict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import blake2b
from typing import Any, Final
from unittest.mock import patch

import msgspec
import numpy as np
import trio
from sensorium.actors import server
from sensorium.actors.config.engine import EngineConfig
from sensorium.actors.config.files import FileConfig
from sensorium.actors.config.server import ServerConfig
from sensorium.actors.engine_process import messages
from sensorium.actors.engine_process import server as remote_server
from sensorium.actors.engine_process.framing import small_frame
from sensorium.actors.engine_process.process import EngineProcess
from sensorium.actors.engine_process.server import EngineServer
from sensorium.actors.http import routes
from sensorium.actors.http.openapi_routes import Described
from sensorium.actors.http.service import Service
from sensorium.actors.inference.client import EngineClient
from sensorium.actors.inference.engine import Engine, EngineBounds, EngineText
from sensorium.actors.replicas.processes import SingleProcess
from sensorium.actors.runtime.supervisor import RestartPolicy
from sensorium.actors.served_model import LoadedModel, loaded_model
from sensorium.actors.telemetry.logs import LogConfig
from sensorium.actors.worker_config import orders_of
from sensorium.engine.models.info import ModelInfo
from sensorium.engine.models.qwen3_vl.positions import rotary_positions
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.side import ModelSide, info_fields
from sensorium.engine.planning.activity import Presence
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import EncodeStep, Plan, SequenceStep, StepResult
from sensorium.media.speech.voice_activity import FloatArray, VoiceActivityModel
from sensorium.protocols.engine.messages import Features, Sample
from simulation.connections import Connections
from simulation.machine import Device, Machine
from support.fake_runner import BYTES_PER_SLOT, STOP_ID, FakeRunner
from trio.testing import memory_stream_pair

CHAT, WHISPER, ASR = MODELS = ("tiny-qwen3-vl", "tiny-whisper", "tiny-qwen3-asr")
_BLOCK_SIZE: Final = 8
_CONTEXT: Final = 512
_STEP_S: Final = 0.01
_ENDS: Final = (STOP_ID, STOP_ID + 1)
_LOUD: Final = 0.01
STEP_TIMEOUT_S: Final = 10.0
SILENCE_S: Final = 8.0
DRAIN_S: Final = 20.0
GRACE_S: Final = 5.0
"""How long a session waits for its client."""
_STATES_S: Final = 1.0
"""Between two reports of the models' process; at its own four a second they cost as much as all else."""
CONFIG: Final = ServerConfig(
    models=MODELS,
    engine=EngineConfig(max_waiting=64),
    files=FileConfig(media_memory="512MiB", max_audio_s=600.0, media_cache="1MiB", max_requests=64),
    listen=replace(ServerConfig().listen, port=0, drain_s=DRAIN_S),
    realtime=replace(ServerConfig().realtime, resume_grace_s=GRACE_S, max_session_s=3600.0),
    logs=LogConfig(access_log="off"),
)


class LoudnessModel(VoiceActivityModel):
    """Whatever is loud is speech: as deterministic as the network, and free."""

    def __init__(self) -> None:
        """Without weights."""

    def score(self, frames: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        loud = np.abs(frames).mean(axis=1) > _LOUD
        return np.where(loud, 0.95, 0.02).astype(np.float32), states


class Runner(FakeRunner):
    """The fake runner with a checkpoint's facts; all token ids are plain ones, none breaks it."""

    nan_id = crash_id = -1

    def __init__(self, info: ModelInfo, num_blocks: int, watch: Callable[[Runner], None]) -> None:
        super().__init__(num_blocks=num_blocks, block_size=_BLOCK_SIZE)
        self.info = info  # type: ignore[assignment]  # the fake one is of one family
        watch(self)

    def execute(self, plan: Plan) -> StepResult:
        """As the fake one, but what is encoded is short, since it is in every key and value; and some of its
        few words end an answer, for a checkpoint's own stop tokens are not among them."""
        encodes = tuple(map(_in_short, plan.encodes))
        sequences = tuple(map(_with_ends, plan.sequences))
        return super().execute(replace(plan, encodes=encodes, sequences=sequences))


def _in_short(encode: EncodeStep) -> EncodeStep:
    features = encode.features
    shape = repr((features.shape, features.grid, features.num_before)).encode()
    digest = blake2b(shape + features.data, digest_size=8).digest()
    return replace(encode, features=Features((1, len(digest)), digest))


def _with_ends(step: SequenceStep) -> SequenceStep:
    if step.begin is None:
        return step
    task = step.begin.task
    if not isinstance(task, Sample):
        return step
    ends = (*task.sampling.stop_token_ids, *_ENDS)
    sampling = msgspec.structs.replace(task.sampling, stop_token_ids=ends)
    begin = msgspec.structs.replace(step.begin, task=msgspec.structs.replace(task, sampling=sampling))
    return msgspec.structs.replace(step, begin=begin)


@dataclass(frozen=True)
class Opened:
    """A checkpoint's facts and its side without a device."""

    info: ModelInfo
    side: ModelSide


@cache
def opened(name: str) -> Opened:
    """Once in all runs: it holds nothing of a run."""
    source = open_model(name, device="cpu", dtype="float32")
    context = min(_CONTEXT, source.info.max_context)
    return Opened(replace(source.info, name=name, max_context=context), source.side)


@dataclass
class Simulated:
    """A server that runs, and what is to be seen of it."""

    machine: Machine
    is_overlapped: bool
    plans_in_flight: int = 1
    num_blocks: int = 96
    connections: Connections = field(default_factory=Connections)
    stop: trio.Event = field(default_factory=trio.Event)
    service: Service | None = None
    engines: dict[str, Engine] = field(default_factory=dict)
    """The real ones of the present process, by model."""
    runners: dict[str, Runner] = field(default_factory=dict)
    process: SimulatedProcess | None = None
    links: list[EngineServer] = field(default_factory=list)

    def make_engine(self, name: str, presence: Presence | None) -> Engine:
        """An engine of a model, not yet running."""
        model = opened(name)
        text = model.side.text

        def keep(runner: Runner) -> None:
            self.runners[name] = runner

        is_attended = model.info.attended_shape is not None
        engine = Engine(
            name,
            partial(Runner, model.info, self.num_blocks, keep),
            text=EngineText(decode=text.decode, byte_table=text.byte_table),
            config=SchedulerConfig(
                num_blocks=self.num_blocks,
                block_size=_BLOCK_SIZE,
                positions=rotary_positions,
                max_context=model.info.max_context,
                max_running=6,
                max_waiting=64,
                max_tokens_per_step=96,
                max_encoder_tokens_per_step=512,
                max_plans_in_flight=self.plans_in_flight,
                max_batch_tokens_per_step=32,
                num_low_priority_tokens=8,
                low_priority_interval=3,
                overlap_encoder=is_attended and self.plans_in_flight == 1,
                vocab_size=model.info.vocab_size,
            ),
            bounds=EngineBounds(max_encoder_bytes=12 * BYTES_PER_SLOT, step_timeout_s=STEP_TIMEOUT_S),
            encoder_bytes=lambda _: BYTES_PER_SLOT,
            restart_policy=RestartPolicy(max_restarts=1000),
            make_worker=lambda: Device(self.machine, name, _STEP_S),
            presence=presence,
        )
        self.engines[name] = engine
        return engine

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`; `started` when everything is ready."""
        make = partial(SimulatedEngines, self)
        with (
            patch.object(server, "Engines", make),
            patch.object(server, "VoiceActivityModel", LoudnessModel),
            patch.object(remote_server, "STATE_INTERVAL_S", _STATES_S),
            patch.object(routes, "Described", _described),
            patch.object(server, "_listen", lambda *_: _Listener()),
            patch.object(server, "serve_connections", self.connections.serve),
        ):
            async with trio.open_nursery() as nursery:
                self.service = await nursery.start(partial(server.serve, CONFIG, stop=self.stop))
                task_status.started()


@cache
def _described_once(paths: frozenset[str], needs_key: bool) -> Described:
    return Described(paths, needs_key=needs_key)


def _described(paths: Collection[str], *, needs_key: bool) -> Described:
    """The pages of documentation, which take half a second to make, once in all runs."""
    return _described_once(frozenset(paths), needs_key)


class _Listener:
    """In place of a socket that listens."""

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 8000

    def close(self) -> None:
        """There is nothing to close."""


class SimulatedEngines:
    """In place of `actors/engines.py`'s `Engines`."""

    lost = None

    def __init__(
        self, simulated: Simulated, config: ServerConfig, stop: Callable[[], None], **_: object
    ) -> None:
        self._simulated = simulated
        self._config = config
        self.processes: SingleProcess | None = None

    async def start(
        self, actors: trio.Nursery, activity: VoiceActivityModel
    ) -> Sequence[LoadedModel[EngineClient]]:
        """Start all of them, here or behind a line."""
        clients: Sequence[EngineClient]
        if self._simulated.is_overlapped:
            process = self._simulated.process = SimulatedProcess(self._simulated, self._config)
            self.processes = SingleProcess(process)
            await actors.start(process.run)
            for engine in process.engines:
                engine.set_info(opened(engine.name).info)
            clients = process.engines
        else:
            presence = Presence()
            engines = [self._simulated.make_engine(name, presence) for name in MODELS]
            for each in engines:
                await actors.start(each.run)
            clients = engines
        loaded: list[LoadedModel[EngineClient]] = []
        for client in clients:
            model = opened(client.name)
            config = self._config.engine_of(model.info.name)
            loaded.append(loaded_model(client, model.info, model.side, activity=activity, config=config))
        return loaded


class _Popen:
    """What is asked of a process that has ended."""

    pid = 4711

    def __init__(self) -> None:
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9


async def _killed() -> str:
    return "the engines' process 4711 ended by signal 9"


class SimulatedProcess(EngineProcess):
    """The models' process as tasks of this one: its engines and its end of the line."""

    def __init__(self, simulated: Simulated, config: ServerConfig) -> None:
        super().__init__(
            orders_of(config), silence_s=SILENCE_S, policy=RestartPolicy(first_delay_s=0.5, max_restarts=1000)
        )
        self._simulated = simulated
        self._scope: trio.CancelScope | None = None
        self.stopped_until = 0.0
        """A process that was stopped (SIGSTOP) says nothing and reads nothing."""

    def die(self) -> bool:
        """Be killed; False if there is none."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        popen: Any = _Popen()
        self._process = popen
        self._loading_since = trio.current_time()
        ours, theirs = memory_stream_pair()
        for stream in (ours, theirs):
            stream.receive_stream.receive_some_hook = self._dawdle
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._live, theirs, popen)
                await self._talk(ours, task_status, _killed)
        finally:
            self._process = None
            await _close(ours)
            await _close(theirs)

    async def _dawdle(self) -> None:
        """What the other one says arrives late, or not before this one goes on."""
        late_s = max(self._simulated.machine.faults.on_link(), self.stopped_until - trio.current_time())
        if late_s > 0:
            await trio.sleep(late_s)

    async def _live(self, stream: trio.abc.Stream, popen: _Popen) -> None:
        """What `actors/engine_process/child.py` does, without the process around it."""
        with trio.CancelScope() as self._scope:
            await trio.sleep(self._simulated.machine.duration_s(0.5))
            presence = Presence()
            engines = [self._simulated.make_engine(name, presence) for name in MODELS]
            hello = messages.Opened(
                tuple(info_fields(opened(name).info) for name in MODELS),
                tuple(messages.CheckpointFiles(name) for name in MODELS),
            )
            async with trio.open_nursery() as nursery:
                async with trio.open_nursery() as loading:
                    loading.start_soon(_report_loading, stream)
                    for engine in engines:
                        await nursery.start(engine.run)
                    loading.cancel_scope.cancel()
                answering = EngineServer(engines, stream)
                self._simulated.links = [answering]
                await answering.run(hello, ())
                nursery.cancel_scope.cancel()
        self._scope = None
        popen.returncode = -9
        await _close(stream)


async def _report_loading(stream: trio.abc.Stream) -> None:
    frame = small_frame(messages.NEWS, messages.encode(messages.Loading()))
    assert frame is not None
    while True:
        await stream.send_all(frame)
        await trio.sleep(_STATES_S)


async def _close(stream: trio.abc.Stream) -> None:
    with trio.CancelScope(shield=True):
        await stream.aclose()
