"""How one model runs, and in which process: two of the value objects of `actors/config/server.py`.

What a model's engine makes of it is in `actors/model_loading.py`; who starts the process,
`actors/engines.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from ...engine.models.memory import MemorySize
from ...engine.text.tools.machine import ToolParser
from .validation import check, check_file, check_word, memory_size, read_pins, read_template_kwargs

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["none", "int8", "int4"]
KvDtype = Literal["auto", "int8", "fp8"]
Where = Literal["on", "off"]

STEP_TIMEOUT_S: Final = 120.0
"""The longest honest steps compile kernels on first use."""


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
    quantization
        Bits of the weights of products, rounded when they are read: int8 halves what a step reads, int4
        leaves a third. Embeddings, norms and convolutions stay in dtype. On CPUs only.
    kv_dtype
        Number format of keys and values, and of what a Whisper decoder listens to. auto: dtype's. int8: whole
        numbers with a scale for every vector; about twice the tokens in the same memory, half as many bytes
        read for each; answers are no longer exact. On CPUs only. fp8 is refused: it gains nothing over int8.
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
        Requests decoded together; 0 takes 64 on a CPU, 256 on a GPU. With fewer than four, batches may wait
        for as long as speech and chats are there.
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
        Record decode steps as CUDA graphs at start, and replay them: the fewer sequences, the more of a step
        it saves, for some GPU memory beside kv_memory and some seconds of the start. auto: on a GPU, of
        models whose steps can be recorded. Whisper's and those that run by transformers' code cannot: on is
        refused.
    generation_config
        How text is sampled where a request does not say. auto: as the checkpoint's generation_config.json
        does; none: without it, as OpenAI's defaults.
    chat_template
        Jinja file that conversations are written by, in place of the checkpoint's own template.
    default_chat_template_kwargs
        JSON object of what templates are told where a request does not say, as {"enable_thinking": false}.
    tool_parser
        The format a model's tool calls are read in. auto: the one its chat template writes; none: calls stay
        text.
    max_logprob_entries
        Log-probabilities one request may be answered with: alternatives, prompt and all its answers together.
        Each is some 100 bytes of JSON.
    kernels
        Which of several ways an operation runs by. auto: the fastest on this machine, measured at the first
        start (up to 3 s) and kept beside the compiled kernels; default: fixed ones; or the JSON file of a
        table that `sensorium kernels` wrote. float32 has fixed ones.
    pin_kernels
        Operations to run by a way of your choice, as linear=onednn or linear=c,attention=fused
        (`sensorium kernels MODEL` lists them). Answers may then depend on what runs beside them.
    step_timeout_s
        Seconds one step may take before the device counts as hung and the model is started again.
    """

    device: Device = "auto"
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
        on runs the models in a process of their own, which is started again when it dies or hangs; off runs
        them in the process that serves clients.
    engine_silence_s
        Seconds the models' process may say nothing before it counts as hung and is killed; three times as
        long while it loads.
    """

    engine_process: Where = "on"
    engine_silence_s: float = 20.0

    def __post_init__(self) -> None:
        check_word("engine_process", self.engine_process, get_args(Where))
        check("engine_silence_s", self.engine_silence_s, 1)
