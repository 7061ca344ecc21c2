"""Models, engines and servers whose answers are given by a script: a text, or a function of the prompt.

The tokenizer, chat template and limits are those of a checkpoint, an embedded one unless another is named;
its weights are not read. Read `testing/scripted_runner.py` for what stands in the model's place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, cast

import trio

from ..actors.config.server import EngineConfig, ServerConfig
from ..actors.inference.client import EngineClient
from ..actors.inference.engine import Engine, EngineBounds, EngineText
from ..actors.inference.executor import ThreadWorker, Worker
from ..actors.local.engine import AsyncLocalEngine, LocalEngine
from ..actors.model_loading import open_grammars
from ..actors.served_model import LoadedModel, loaded_model
from ..engine.models.registry import open_model
from ..engine.models.source import ModelSource
from ..engine.planning.limits import SchedulerConfig
from ..engine.text.tokenizer import TextTokenizer
from ..media.speech.voice_activity import VoiceActivityModel
from ..protocols.errors import ModelLoadError
from .scripted_runner import ScriptedRunner
from .server import Server, make_config, running_server

Script = str | Callable[[str], str]
"""The answer to every prompt, or a function from a prompt's text (control tokens left out) to its answer.

An answer is written as the model would write it: control tokens by their names, such as `<think>`. A function
is called in the engine's thread, and must depend on the prompt alone.
"""

DEFAULT_MODEL: Final = "tiny-qwen3-vl"
DEFAULT_CONFIG: Final = EngineConfig(device="cpu", dtype="float32", num_threads=1, tool_parser="hermes")
"""Calls of tools are `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""
_CONTEXTS: Final = 8
"""Answers at full length that there are blocks for."""


def scripted_model(
    script: Script,
    *,
    model: str | Path = DEFAULT_MODEL,
    name: str | None = None,
    config: EngineConfig = DEFAULT_CONFIG,
    activity: VoiceActivityModel | None = None,
    make_worker: Callable[[], Worker] = ThreadWorker,
) -> LoadedModel[Engine]:
    """A model of that checkpoint's text side with the script's answers; start `engine.run` before you use it.

    `name` is its public name, else `model`. Of `config` only chat templates and the parser of tool calls
    count. `make_worker` says where steps run: `InlineWorker` on a virtual clock. Blocking: in trio call it in
    a thread. Raises ModelLoadError for a checkpoint that cannot be read or that answers no prompts.
    """
    source = open_model(model, device="cpu", dtype="float32")
    if source.side.prompts is None:
        raise ModelLoadError(f"{model} answers no prompts; a script needs a model that chats")
    text, info = source.side.prompts.text, source.info
    bounds = _scheduler_config(source)
    engine = Engine(
        name or str(model),
        lambda: ScriptedRunner(
            partial(_answer, script, text), info, num_blocks=bounds.num_blocks, block_size=bounds.block_size
        ),
        text=EngineText(
            decode=source.side.text.decode,
            byte_table=source.side.text.byte_table,
            grammars=open_grammars(source),
        ),
        config=bounds,
        bounds=EngineBounds(max_encoder_bytes=_CONTEXTS * info.max_context),
        encoder_bytes=None if source.encoder_bytes is None else lambda _: 1,
        make_worker=make_worker,
    )
    public = replace(info, name=engine.name)
    return loaded_model(engine, public, source.side, activity=activity, config=config)


def _scheduler_config(source: ModelSource) -> SchedulerConfig:
    info = source.info
    plain = SchedulerConfig(num_blocks=1)
    return replace(
        plain,
        num_blocks=_CONTEXTS * -(-info.max_context // plain.block_size),
        max_context=info.max_context,
        vocab_size=info.vocab_size,
        positions=source.positions,
    )


def _answer(script: Script, text: TextTokenizer, prompt: Sequence[int]) -> tuple[int, ...]:
    answer = script if isinstance(script, str) else script(text.decode(prompt))
    return text.encode(answer, allow_special=True)


@contextmanager
def scripted_server(
    script: Script, *, model: str | Path = DEFAULT_MODEL, config: ServerConfig | None = None
) -> Iterator[Server]:
    """A server of one scripted model for the length of the block, called as `config` says, else as `model`.

    `config` is `make_config(model, engine=DEFAULT_CONFIG)` unless given; it has to name one model.
    """
    config = config or make_config(str(model), engine=DEFAULT_CONFIG)
    (name,) = config.public_names

    async def start(
        actors: trio.Nursery, activity: VoiceActivityModel
    ) -> Sequence[LoadedModel[EngineClient]]:
        engine_config = config.engine_of(name)
        opening = partial(
            scripted_model, script, model=model, name=name, config=engine_config, activity=activity
        )
        loaded = await trio.to_thread.run_sync(opening)
        await actors.start(loaded.engine.run)
        return [cast("LoadedModel[EngineClient]", loaded)]

    with running_server(config, start=start) as server:
        yield server


class ScriptedLocalEngine(LocalEngine):
    """A `LocalEngine` with the script's answers."""

    def __init__(self, script: Script, *, model: str | Path = DEFAULT_MODEL) -> None:
        super().__init__(model)
        self._script = script

    def _load(self) -> LoadedModel[Engine]:
        return scripted_model(self._script, model=self._model)


class AsyncScriptedLocalEngine(AsyncLocalEngine):
    """An `AsyncLocalEngine` with the script's answers."""

    def __init__(self, script: Script, *, model: str | Path = DEFAULT_MODEL) -> None:
        super().__init__(model)
        self._script = script

    def _load(self) -> LoadedModel[Engine]:
        return scripted_model(self._script, model=self._model)
