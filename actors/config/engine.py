"""How one model runs, and in which process: two of the value objects of `actors/config/server.py`.

What a model's engine makes of it is in `actors/model_loading.py`; who starts the process,
`actors/engines.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from ...engine.models.memory import MemorySize
from ...engine.planning.limits import SchedulingPolicy
from ...engine.text.tools.machine import ToolParser
from ..errors import ConfigError
from .validation import (
    check,
    check_file,
    check_word,
    memory_size,
    read_host_port,
    read_pins,
    read_template_kwargs,
)

_DEVICE: Final = re.compile(r"auto|cpu|cuda(:\d+(,\d+)*)?")
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["none", "int8", "int4"]
KvDtype = Literal["auto", "int8", "fp8"]
Where = Literal["on", "off"]

STEP_TIMEOUT_S: Final = 120.0
"""The longest honest steps compile kernels on first use."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How a model runs. Applies to every served model; --model sets an option for one.

    Attributes
    ----------
    device
        Device to run on: auto (cuda if there is one, else cpu), cpu, cuda, or a GPU by its number as cuda:1.
        Replicas take those of a list in turn: cuda:0,1.
    dtype
        Data type of weights and activations. auto: float32 for embedded models (too small to gain from
        less), else bfloat16 where the device computes in it, else float32.
    quantization
        Weight-only quantization of linear layers, applied when the weights are loaded: int8 halves what a
        step reads, int4 leaves a third. Embeddings, norms and convolutions keep dtype. CPUs only.
    kv_dtype
        Data type of the KV cache, Whisper's cross-attention included. auto: dtype. int8: with a scale per
        vector; about twice the tokens in the same memory and half the bytes read per token; answers are no
        longer exact. CPUs only. fp8 is refused: it gains nothing over int8.
    num_threads
        Threads for tensor operations on a CPU; 0 takes all cores (one for embedded models, whose matrices
        are too small to share).
    kv_memory
        Memory of the KV cache: a size as 2GiB, or a share, 0 to 1, of what weights and encoder cache leave
        free. auto: for all models together 0.9 on a GPU and 0.25 on a CPU, per model at most what max_running
        requests of full context need, and up to 0.5 where not even one would fit. On a CPU memory is taken as
        it is used.
    num_blocks
        Blocks of the KV cache, in place of kv_memory; 0 uses kv_memory.
    block_size
        Tokens per block.
    max_context
        Tokens of prompt and answer together; 0 takes the model's own limit. With less, more requests fit.
    encoder_memory
        Memory of the encoder cache (encoded audio and images): a size or a share. auto: 0.1, at most 1GiB.
    max_running
        Requests decoded together; 0 takes 64 on a CPU, 256 on a GPU. With fewer than four, requests of the
        class batch may wait as long as others run.
    max_waiting
        Requests that may wait for the engine before new ones are refused with 503.
    plans_in_flight
        Steps in flight on the device: with 2 the next step is planned while one runs. 0 takes 1 on a CPU, 2
        on a GPU.
    scheduling_policy
        Order of requests. service-classes: live speech first, then what somebody waits for, then batches,
        each with a share of every step; first-come: in order of arrival, whatever the request.
    ngram_drafts
        Draft tokens per step of text answers, found by n-gram lookup in prompt and answer and verified in the
        same forward pass, so answers do not change. Useful where answers repeat their prompt (code to edit,
        text to quote); 0 drafts none.
    cuda_graphs
        Record decode steps as CUDA graphs at start and replay them. Saves most with few sequences; costs some
        GPU memory on top of kv_memory and some seconds of the start. auto: on a GPU, for models whose steps
        can be recorded. on is refused for Whisper and for models that run by transformers' code.
    generation_config
        Default sampling options of text. auto: those of the checkpoint's generation_config.json; none:
        OpenAI's defaults.
    chat_template
        Jinja file of a chat template, in place of the checkpoint's own.
    default_chat_template_kwargs
        JSON object of default variables of chat templates, as {"enable_thinking": false}.
    tool_parser
        Format of the model's tool calls. auto: the one its chat template writes; none: calls stay text.
    max_logprob_entries
        Log-probabilities per request, with alternatives, prompt and all answers. Each is some 100 bytes of
        JSON.
    kernels
        Implementation of each operation. auto: the fastest on this machine, measured at the first start (up
        to 3 s) and kept with the compiled kernels; default: a fixed choice; or a JSON file that `sensorium
        kernels --save` wrote. float32 always uses the fixed choice.
    pin_kernels
        Force implementations, as linear=onednn or linear=c,attention=fused (`sensorium kernels MODEL` lists
        them). Answers may then depend on other requests of the same batch.
    step_timeout_s
        Seconds a step may take before the device counts as hung and the model is restarted.
    """

    device: str = "auto"
    dtype: Dtype = "auto"
    quantization: Quantization = "none"
    kv_dtype: KvDtype = "auto"
    num_threads: int = 0
    kv_memory: str = "auto"
    num_blocks: int = 0
    block_size: int = 16
    max_context: int = 0
    encoder_memory: str = "auto"
    max_running: int = 0
    max_waiting: int = 1024
    plans_in_flight: int = 0
    scheduling_policy: SchedulingPolicy = "service-classes"
    ngram_drafts: int = 0
    cuda_graphs: Literal["auto", "on", "off"] = "auto"
    generation_config: Literal["auto", "none"] = "auto"
    chat_template: str = ""
    default_chat_template_kwargs: str = ""
    tool_parser: ToolParser = "auto"
    max_logprob_entries: int = 300_000
    kernels: str = "auto"
    pin_kernels: str = ""
    step_timeout_s: float = STEP_TIMEOUT_S

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.device):
            raise ConfigError(
                f"--device is {self.device!r}; allowed: auto, cpu, cuda, cuda:1, or cuda:0,1 for two replicas"
            )
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
        read_pins(self.pin_kernels)
        check_file("chat_template", self.chat_template)  # before weights are read
        read_template_kwargs(self.default_chat_template_kwargs)

    @property
    def kv_size(self) -> MemorySize | None:
        """`kv_memory`, None for auto."""
        return memory_size("kv_memory", self.kv_memory)

    @property
    def encoder_size(self) -> MemorySize | None:
        """`encoder_memory`, None for auto."""
        return memory_size("encoder_memory", self.encoder_memory)


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Where models run.

    Attributes
    ----------
    engine_process
        on: run the models in a process of their own, which is restarted when it dies or hangs; off: run them
        in the process that serves clients.
    engine_silence_s
        Seconds without a heartbeat before the engine process counts as hung and is killed; three times as
        long while it loads.
    replicas
        Processes that run all models, each with its share of the cores, of the memory and of the GPUs that
        device lists. Sessions and conversations stay at one; a prompt goes where its beginning is cached, or
        where the least waits. One that dies or is silent for a second is left out until it is back.
    engines
        Address of engines that `sensorium engine` runs, HOST:PORT; repeat it for several with the same
        models. Nothing is loaded here then: the models are named as they are there.
    cluster
        Address of the directory that `sensorium cluster` serves, HOST:PORT: its engines are used as they come
        and go. Nothing is loaded here then: the models are named as they are there.
    front_listen
        Address at which other servers of the cluster relay what only this one has (stored responses, live
        sessions, ephemeral keys), HOST:PORT; they are given it by the directory. Default: the address by
        which the directory is reached, and a free port.
    engine_secret_file
        File with the secret that these engines, or the cluster, know, 16 bytes or more.
    engine_tls_cert
        Certificate (PEM) to show engines and other servers of the cluster, for TLS on both sides; with
        engine_tls_key and engine_tls_ca.
    engine_tls_key
        Its key.
    engine_tls_ca
        Certificates of the authority that theirs must be of.
    """

    engine_process: Where = "on"
    engine_silence_s: float = 20.0
    replicas: int = 1
    engines: tuple[str, ...] = ()
    cluster: str = ""
    front_listen: str = ""
    engine_secret_file: Path | None = None
    engine_tls_cert: Path | None = None
    engine_tls_key: Path | None = None
    engine_tls_ca: Path | None = None

    def __post_init__(self) -> None:
        check_word("engine_process", self.engine_process, get_args(Where))
        check("engine_silence_s", self.engine_silence_s, 1)
        check("replicas", self.replicas, 1, 64)
        if self.replicas > 1 and self.engine_process == "off":
            raise ConfigError(f"--replicas is {self.replicas} with --engine-process off; allowed: on")
        for address in self.engines:
            read_host_port("engines", address)
        if self.cluster:
            read_host_port("cluster", self.cluster)
        if self.front_listen:
            read_host_port("front_listen", self.front_listen, lowest_port=0)
            if not self.cluster:
                raise ConfigError(
                    f"--front-listen is {self.front_listen!r} without --cluster; allowed: with it, or neither"
                )
        if self.engines and self.cluster:
            raise ConfigError("--engines and --cluster are both given; allowed: one of the two")
        elsewhere = "--engines" if self.engines else "--cluster" if self.cluster else ""
        if elsewhere and (self.replicas > 1 or self.engine_process == "off"):
            raise ConfigError(
                f"{elsewhere} means processes elsewhere; allowed: no --replicas, and no --engine-process off"
            )
        if elsewhere and self.engine_secret_file is None:
            raise ConfigError(
                f"{elsewhere} needs --engine-secret-file: the file with the secret of both sides"
            )
