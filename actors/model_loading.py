"""From a model's name to its engine: opens the checkpoint and shares out the device's memory for it.

Asks a model's source what it can do, never which family it is of. Weights are read later, in the device's
thread. Read `engine/models/registry.py`, `engine/models/memory.py` and `engine/execution/runner.py` for what
it calls, `actors/inference/engine.py` for what it makes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch

from ..engine.control_groups import num_cores
from ..engine.execution.grammar_store import GrammarStore
from ..engine.execution.runner import Runner
from ..engine.models.fingerprint import fingerprint
from ..engine.models.info import ModelInfo, sampling_defaults
from ..engine.models.memory import MemoryPlan, MemoryRequest, plan_memory
from ..engine.models.registry import embedded_models, open_model
from ..engine.models.side import ModelSide
from ..engine.models.source import ModelSource
from ..engine.models.weights import free_bytes
from ..engine.planning.activity import Presence
from ..engine.planning.limits import SchedulerConfig
from ..kernels.gpu import jit as triton_jit
from ..media.speech.voice_activity import VoiceActivityModel
from ..media.vision.pixel_rule import open_rule
from ..protocols.errors import ModelLoadError
from ..protocols.shared.sampling import NO_SAMPLING_DEFAULTS, SamplingDefaults
from .config.engine import EngineConfig
from .inference.engine import Engine, EngineBounds, EngineText
from .kernel_choices import settle_kernels
from .served_model import LoadedModel, loaded_model
from .worker_config import Orders

logger = logging.getLogger(__name__)


_UNSHARED: Final = 1
"""Blocks of a device's choices, until its memory is shared out."""
_CHOICES: Final[dict[Literal["cpu", "cuda"], SchedulerConfig]] = {
    "cpu": SchedulerConfig(
        num_blocks=_UNSHARED,
        max_running=64,
        # A step's tokens delay everybody's next token by their computing: hundreds take a second.
        max_tokens_per_step=512,
        # Encoding takes its time however many are encoded together, and a step cannot be left: half a Whisper
        # window, so that who comes meanwhile waits no longer than for that, or for one whole item.
        max_encoder_tokens_per_step=768,
        # 128 a step are computed nearly as fast as 512, and are over in a third of the time.
        max_batch_tokens_per_step=128,
        # Beside a better class few rows are hardly slower than one.
        num_low_priority_tokens=8,
        low_priority_interval=4,
        # Planning takes a core from the device, and there is nothing to hide it behind.
        max_plans_in_flight=1,
        # A Whisper window takes as long as dozens of tokens, and the start of one as some.
        max_rows_during_live=384,
    ),
    "cuda": SchedulerConfig(
        num_blocks=_UNSHARED,
        max_running=256,
        max_tokens_per_step=8192,
        max_encoder_tokens_per_step=8192,
        num_low_priority_tokens=256,
        max_plans_in_flight=2,
    ),
}
"""What suits a kind of device, where the operator says nothing."""


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model's engine, not yet running, and what is known of the model."""

    engine: Engine
    info: ModelInfo
    """`max_context` is what is served of it."""
    memory: MemoryPlan
    side: ModelSide


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """The part of a device's memory that one of several processes with the same models may take."""

    num_sharing: int = 1
    """Processes on the device."""
    host_bytes: int | None = None
    """What was free on the host before the first of them started; None: what is free now."""

    def free_bytes(self, device: torch.device, co_resident: Sequence[MemoryPlan] = ()) -> int:
        """Bytes for the next model, after the weights of those in this process.

        On a CPU every start of every process gets the same: what the others hold by then is their share,
        and is not subtracted again.
        """
        if device.type == "cuda" or self.host_bytes is None:
            return free_bytes(device) // self.num_sharing
        taken = sum(each.weight_bytes for each in co_resident if each.device == "cpu")
        return max(0, self.host_bytes // self.num_sharing - taken)


WHOLE: Final = MemoryShare()
"""Of the only process."""


def load_model(
    name: str, model: str, config: EngineConfig, activity: VoiceActivityModel | None = None
) -> LoadedModel[Engine]:
    """`open_engine`, and what asks it, for one model alone. Blocking: call it in a thread.

    `activity` says what speech models need not be asked about.
    """
    opened = open_engine(name, model, config)
    return loaded_model(opened.engine, opened.info, opened.side, activity=activity, config=config)


def open_next(worker_config: Orders, opened: Sequence[OpenedModel]) -> OpenedModel:
    """`open_engine` for the next of a server's models, behind those that are open."""
    order = worker_config.models[len(opened)]
    return open_engine(
        order.name,
        order.model,
        order.config,
        max_pixels=worker_config.max_pixels,
        co_resident=tuple(each.memory for each in opened),
        num_to_come=len(worker_config.models) - len(opened) - 1,
        share=MemoryShare(worker_config.num_sharing, worker_config.host_bytes),
        presence=opened[0].engine.presence if opened else None,
    )


def open_engine(
    name: str,
    model: str,
    config: EngineConfig,
    *,
    max_pixels: int = 0,
    co_resident: Sequence[MemoryPlan] = (),
    num_to_come: int = 0,
    share: MemoryShare = WHOLE,
    presence: Presence | None = None,
) -> OpenedModel:
    """Open a checkpoint, settle sizes and make its engine. Blocking: call it in a thread.

    `max_pixels` is the largest image that will come (0: what the model itself allows). Memory that
    is given by default is shared with the models `beside` it and the ones to come; `presence` is theirs.
    `share` is the part of the memory that this process may take.
    Raises ModelLoadError naming the folder, file or tensor at fault, or what does not fit into memory.
    """
    return open_engine_of(
        open_source(model, config),
        name,
        config,
        is_embedded=model in embedded_models(),
        max_pixels=max_pixels,
        co_resident=co_resident,
        num_to_come=num_to_come,
        share=share,
        presence=presence,
    )


def open_source(model: str, config: EngineConfig) -> ModelSource:
    """Open a checkpoint as `config` says. Raises ModelLoadError."""
    is_embedded = model in embedded_models()
    source = open_model(
        model,
        device=config.device,
        dtype="float32" if config.dtype == "auto" and is_embedded else config.dtype,
        quantization=config.quantization,
        kv_dtype=config.kv_dtype,
    )
    source.check_cache(config.block_size)
    return source


def open_engine_of(
    source: ModelSource,
    name: str,
    config: EngineConfig,
    *,
    is_embedded: bool = False,
    max_pixels: int = 0,
    co_resident: Sequence[MemoryPlan] = (),
    num_to_come: int = 0,
    share: MemoryShare = WHOLE,
    presence: Presence | None = None,
) -> OpenedModel:
    """`open_engine` behind `open_source`."""
    records = records_steps(name, source, config)
    is_cpu = source.device.type == "cpu"
    choices = _CHOICES["cpu" if is_cpu else "cuda"]
    max_running = config.max_running or choices.max_running
    max_tokens_per_step = max(choices.max_tokens_per_step, max_running)
    if source.info.sees_whole_prompts:
        max_tokens_per_step = max(max_tokens_per_step, source.info.max_context)
    requested = _memory_request(source, config, max_running, max_tokens_per_step, max_pixels)
    memory = _share_out(name, source, replace(requested, num_models=1 + num_to_come), co_resident, share)
    grammars, text = open_grammars(source), source.side.text
    num_threads = config.num_threads or (1 if is_embedded else num_cores())
    info = replace(source.info, name=name, max_context=memory.context, kv_dtype=memory.kv_dtype)
    if source.side.prompts is not None:
        info = replace(info, sampling=_sampling(source, config))
    # An encode of Whisper's is long and a step short.
    overlap_encoder = is_cpu and num_threads > 1 and info.attended_shape is not None
    engine = Engine(
        name,
        _runner_maker(
            name,
            source,
            config,
            memory,
            num_threads,
            grammars,
            max_running if records else 0,
        ),
        text=EngineText(decode=text.decode, byte_table=text.byte_table, grammars=grammars),
        config=replace(
            choices,
            num_blocks=memory.num_blocks,
            block_size=memory.block_size,
            max_context=memory.context,
            max_running=max_running,
            max_waiting=config.max_waiting,
            scheduling_policy=config.scheduling_policy,
            max_tokens_per_step=max_tokens_per_step,
            groups=source.layout.groups,
            num_state_slots=memory.num_state_slots,
            overlap_encoder=overlap_encoder,
            max_rows_during_live=None if overlap_encoder else choices.max_rows_during_live,
            max_plans_in_flight=config.plans_in_flight or choices.max_plans_in_flight,
            input_frames_per_row=info.input_frames_per_row,
            max_rows_per_chunk=max(choices.max_rows_per_chunk, info.whole_input_rows),
            is_bidirectional=info.is_bidirectional,
            vocab_size=info.vocab_size,
            positions=source.positions,
            sees_whole_items=source.sees_whole_items,
            sees_whole_prompts=source.info.sees_whole_prompts,
            fingerprint=fingerprint(source.folder, str(source.dtype), source.cache_name, config.quantization),
        ),
        bounds=EngineBounds(
            max_encoder_bytes=max(1, memory.encoder_bytes),
            step_timeout_s=config.step_timeout_s,
            survives_hanging=is_cpu,
        ),
        encoder_bytes=source.encoder_bytes,
        presence=presence,
    )
    return OpenedModel(engine, info, memory, source.side)


def records_steps(name: str, source: ModelSource, config: EngineConfig) -> bool:
    """Whether decode steps are recorded. Raises ModelLoadError where that is asked for and impossible."""
    on_gpu = source.device.type == "cuda"
    if config.cuda_graphs == "on" and not source.info.replayable:
        raise ModelLoadError(
            f"{name}: --cuda-graphs is on, but the steps of a {source.info.family} model cannot be recorded"
        )
    if config.cuda_graphs == "on" and not on_gpu:
        raise ModelLoadError(
            f"{name}: --cuda-graphs is on, but the model runs on {source.device}; allowed: cuda"
        )
    if config.cuda_graphs == "auto":
        is_plain = source.cache_dtype is source.dtype
        return on_gpu and source.info.replayable and is_plain and triton_jit.is_installed()
    return config.cuda_graphs == "on"


def _sampling(source: ModelSource, config: EngineConfig) -> SamplingDefaults:
    """How answers are sampled where a request does not say; transcripts are drawn only if the checkpoint
    says so."""
    transcribes = source.side.speech is not None
    if config.generation_config == "auto":
        return sampling_defaults(source.folder, is_greedy=transcribes)
    return SamplingDefaults(temperature=0.0) if transcribes else NO_SAMPLING_DEFAULTS


def _memory_request(
    source: ModelSource, config: EngineConfig, max_running: int, max_tokens_per_step: int, max_pixels: int
) -> MemoryRequest:
    activation_bytes, prompts = 0, source.side.prompts
    if source.activation_bytes is not None and prompts is not None and prompts.media.pixels is not None:
        rule = open_rule(prompts.media.pixels, source.folder).bounded(max_pixels or None)
        activation_bytes = source.activation_bytes(rule.max_item_pixels)
    return MemoryRequest(
        device="cuda" if source.device.type == "cuda" else "cpu",
        weight_bytes=source.weight_bytes,
        token_bytes=source.layout.token_bytes,
        groups=source.layout.groups,
        state_bytes=source.layout.state_bytes or source.info.state_bytes,
        max_tokens_per_step=max_tokens_per_step,
        kv_dtype=source.cache_name,
        model_context=source.info.max_context,
        block_size=config.block_size,
        max_running=max_running,
        max_context=config.max_context or None,
        kv_memory=config.kv_size,
        num_blocks=config.num_blocks or None,
        activation_bytes=activation_bytes,
        encoding_bytes=0 if source.encoder_bytes is None else source.encoder_bytes(1),
        encoder_memory=config.encoder_size,
    )


def _share_out(
    name: str,
    source: ModelSource,
    requested: MemoryRequest,
    co_resident: Sequence[MemoryPlan],
    share: MemoryShare,
) -> MemoryPlan:
    if requested.device == "cpu":
        requested = replace(
            requested,
            promised_bytes=sum(each.promised_bytes for each in co_resident),
            promised_kv_bytes=sum(each.promised_kv_bytes for each in co_resident),
        )
    try:
        memory = plan_memory(requested, share.free_bytes(source.device, co_resident))
    except ModelLoadError as error:
        raise ModelLoadError(f"{name}: {error.message}") from None
    logger.info("%s: runs through %s; %s", name, source.info.runs_through, memory)
    return memory


def _runner_maker(
    name: str,
    source: ModelSource,
    config: EngineConfig,
    memory: MemoryPlan,
    num_threads: int,
    grammars: GrammarStore | None,
    graph_rows: int,
) -> Callable[[], Runner]:
    """What reads the weights and makes the runner, in the device's thread, at every start. `graph_rows` is
    the largest decode step to record, 0 for none."""

    def make_runner() -> Runner:
        runner = Runner(
            source.load(),
            num_blocks=memory.num_blocks,
            block_size=memory.block_size,
            num_threads=num_threads,
            grammars=grammars,
            cuda_graphs=graph_rows > 0,
            max_running=graph_rows,
            kv_dtype=source.cache_dtype,
            num_state_slots=memory.num_state_slots,
        )
        settle_kernels(name, runner, config)
        runner.warm_up()
        return runner

    return make_runner


def open_grammars(source: ModelSource) -> GrammarStore | None:
    """None for models whose answers are no free text, or whose tokens' bytes are not known."""
    tokenizer = source.side.text.grammar_json
    if tokenizer is None or source.info.is_bidirectional:
        return None
    try:
        store = GrammarStore(
            tokenizer, vocab_size=source.info.vocab_size, stop_token_ids=source.info.stop_token_ids
        )
        store.prepare()
        return store
    except ValueError as error:
        logger.warning("%s: no structured output (%s)", source.info.name, error)
        return None
