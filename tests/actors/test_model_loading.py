"""From a folder to an engine: families load, sizes are settled once, what does not fit is refused."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
import trio
from msgspec.structs import replace as replace_fields
from sensorium.actors import model_loading as models_module
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.inference.engine import Engine
from sensorium.actors.model_loading import load_model, open_engine, open_next, records_steps
from sensorium.actors.served_model import LoadedModel
from sensorium.actors.telemetry.logs import LogConfig
from sensorium.actors.worker_config import ModelOrder, Orders
from sensorium.engine.models.embedded import embedded_models
from sensorium.engine.models.memory import MemoryPlan
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.whisper.info import WhisperInfo
from sensorium.kernels.gpu import jit as triton_jit
from sensorium.protocols.chat.content import MediaPart
from sensorium.protocols.engine.messages import (
    Grammar,
    Lane,
    NgramDraft,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
)
from sensorium.protocols.errors import BadRequestError, ModelLoadError
from sensorium.protocols.shared.sampling import SamplingDefaults
from support.asr_folder import make_asr_folder
from support.fake_engine import run_whole
from support.recurrent_families import recurrent_config
from support.running_speech import random_folder
from support.text_folder import make_qwen3_folder, make_text_folder
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

CONFIG = EngineConfig(device="cpu", dtype="float32", num_threads=1)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random text model."""
    return make_qwen3_folder(tmp_path_factory.mktemp("models") / "qwen3")


@asynccontextmanager
async def running(folder: Path, config: EngineConfig = CONFIG) -> AsyncIterator[LoadedModel[Engine]]:
    model = await trio.to_thread.run_sync(load_model, "random", str(folder), config)
    async with trio.open_nursery() as nursery:
        await nursery.start(model.engine.run)
        yield model
        nursery.cancel_scope.cancel()


def ask(name: str, **requests: object) -> SampleRequest:
    sampling = SamplingParams(max_tokens=12, ignore_eos=True, **requests)  # type: ignore[arg-type]
    return Request(RequestId(name), (5, 6, 7, 8, 5, 6, 7), Sample(sampling))


async def test_a_text_model_answers_the_same_in_every_way(folder: Path) -> None:
    async with running(folder) as model:
        assert model.speech is None
        assert model.prompts is not None
        whole = await run_whole(model.engine, ask("whole"))
        async with model.engine.placed() as place, place.run(ask("stream")) as stream:
            parts = [part async for part in stream]
        again = await run_whole(
            model.engine,
            msgspec.structs.replace(
                ask("drafted"), task=msgspec.structs.replace(ask("drafted").task, ngram=NgramDraft())
            ),
        )
        assert whole.token_ids == tuple(token for part in parts for token in part.token_ids)
        assert whole.text == "".join(part.text for part in parts)
        decoded = model.prompts.text.decode(whole.token_ids)
        assert decoded in (whole.text, f"{whole.text}\ufffd"), "but for a character that was cut at the end"
        assert again.token_ids == whole.token_ids
    async with running(folder, replace(CONFIG, plans_in_flight=2)) as model:
        assert (await run_whole(model.engine, ask("overlapped"))).token_ids == whole.token_ids


@pytest.mark.parametrize("model_type", ["lfm2", "mamba2"])
async def test_models_with_states_have_slots_and_answer_the_same_again(
    model_type: str, tmp_path: Path
) -> None:
    folder = make_text_folder(tmp_path, recurrent_config(model_type))
    async with running(folder) as model:
        prompt = tuple(range(3, 43))
        task = Sample(SamplingParams(max_tokens=12, ignore_eos=True))
        answers = [
            await run_whole(model.engine, Request(RequestId(str(number)), prompt, task))
            for number in range(2)
        ]
        reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        reference.generation_config.eos_token_id = None
        whole = reference.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)
        assert [each.token_ids for each in answers] == [tuple(whole[0, len(prompt) :].tolist())] * 2


async def test_answers_are_held_to_their_grammar_and_a_bad_one_fails_alone(folder: Path) -> None:
    async with running(folder) as model:
        bound = SamplingParams(max_tokens=20, grammar=Grammar("choice", '["yes", "no"]'))
        answer = await run_whole(model.engine, Request(RequestId("a"), (5, 6), Sample(bound)))
        assert answer.text in ("yes", "no")
        assert answer.finish_reason == "stop"
        with pytest.raises(BadRequestError):
            await run_whole(model.engine, ask("bad", grammar=Grammar("regex", "(")))
        assert (await run_whole(model.engine, ask("next"))).finish_reason == "length"


async def test_a_whisper_model_transcribes_and_takes_no_prompts() -> None:
    async with running(random_folder()) as model:
        assert model.speech is not None
        assert model.prompts is None
        assert isinstance(model.engine.info, WhisperInfo)


def test_what_hears_has_room_for_encodings() -> None:
    assert open_engine("random", str(random_folder()), CONFIG).memory.encoder_bytes > 0


async def test_a_servers_engines_know_whether_somebody_speaks_to_any(folder: Path) -> None:
    order = ModelOrder("", str(folder), replace(CONFIG, num_blocks=32))
    orders = Orders((replace_fields(order, name="a"), replace_fields(order, name="b")), 0, LogConfig())
    first = open_next(orders, ())
    second = open_next(orders, (first,))
    async with trio.open_nursery() as nursery:
        for opened in (first, second):
            await nursery.start(opened.engine.run)
        await run_whole(first.engine, ask("read"))
        quiet = [first.engine.presence.is_quiet]
        await run_whole(second.engine, replace_fields(ask("spoken"), lane=Lane("live")))
        assert [*quiet, first.engine.presence.is_quiet] == [True, False]
        nursery.cancel_scope.cancel()


async def test_a_shortened_context_is_what_is_served(folder: Path) -> None:
    async with running(folder, replace(CONFIG, max_context=16, num_blocks=1)) as model:
        assert model.info.max_context == model.engine.info.max_context == 16
        assert model.engine.statistics().num_total_blocks == 1
        with pytest.raises(BadRequestError, match="context is 16 tokens"):
            await run_whole(model.engine, ask("long"))
        short = Request(RequestId("a"), (1,) * 12, Sample(SamplingParams(max_tokens=4, ignore_eos=True)))
        assert len((await run_whole(model.engine, short)).token_ids) == 4


def test_what_fits_is_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        load_model("random", str(folder), replace(CONFIG, max_running=2))
    said = next(
        record.message for record in caplog.records if "requests of the full context" in record.message
    )
    assert said.startswith("random: runs through the engine's own code of qwen3; weights ")
    assert "= 2.0 requests of the full context" in said


def test_what_does_not_fit_is_refused_with_what_would(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelLoadError, match=r"--max-context 16 or --num-blocks \d+"):
        load_model("random", str(folder), replace(CONFIG, num_blocks=1))
    monkeypatch.setattr(models_module, "free_bytes", lambda device: 1000)
    with pytest.raises(ModelLoadError, match=r"^random: the weights take"):
        load_model("random", str(folder), CONFIG)


def test_a_process_that_restarts_gets_the_share_of_its_first_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others hold theirs by then, so that less is free than at the first start."""
    order = ModelOrder("random", str(folder), replace(CONFIG, num_blocks=0, kv_memory="auto"))
    orders = Orders((order, order), 0, LogConfig(), num_sharing=2, host_bytes=1 << 30)

    def start(free: int) -> list[MemoryPlan]:
        monkeypatch.setattr(models_module, "free_bytes", lambda device: free)
        first = open_next(orders, ())
        return [first.memory, open_next(orders, (first,)).memory]

    first, second = start(1 << 30)
    assert start(1 << 20) == [first, second]
    assert first.free_bytes == 1 << 29
    assert second.free_bytes == first.free_bytes - first.weight_bytes - first.promised_bytes
    monkeypatch.setattr(models_module, "free_bytes", lambda device: 1 << 20)
    with pytest.raises(ModelLoadError, match="the weights take"):
        open_next(replace_fields(orders, num_sharing=1 << 20), ())


def test_clients_see_the_public_name_and_not_the_folder(folder: Path) -> None:
    prompts = load_model("random", str(folder), CONFIG).prompts
    assert prompts is not None
    part = MediaPart("image", b"", "messages[0].content[0]")
    with pytest.raises(BadRequestError, match="the model random takes text"):
        prompts.check_kind(part)


def test_the_checkpoints_own_sampling_is_the_default(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    said = json.loads((copy / "generation_config.json").read_text()) | {"temperature": 0.6, "top_k": 20}
    (copy / "generation_config.json").write_text(json.dumps(said))
    own = load_model("random", str(copy), CONFIG).info.sampling
    assert own == SamplingDefaults(temperature=0.6, top_k=20)
    without = replace(CONFIG, generation_config="none")
    assert load_model("random", str(copy), without).info.sampling == SamplingDefaults()
    (copy / "generation_config.json").write_text(json.dumps(said | {"temperature": -1}))
    with pytest.raises(ModelLoadError, match="--generation-config none leaves"):
        load_model("random", str(copy), CONFIG)
    assert load_model("random", str(copy), without).prompts is not None


def test_cuda_graphs_of_a_model_that_has_none_are_refused() -> None:
    with pytest.raises(ModelLoadError, match="the steps of a whisper model cannot be recorded"):
        load_model("random", str(random_folder()), replace(CONFIG, cuda_graphs="on"))


def test_decode_steps_are_recorded_by_default_where_they_can_be(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_jit, "is_installed", lambda: True)
    card, asked = torch.device("cuda"), replace(CONFIG, cuda_graphs="off")
    dense, whisper = (open_model(str(each), dtype="float32") for each in (folder, random_folder()))
    assert not records_steps("random", dense, CONFIG), "on a CPU"
    assert records_steps("random", replace(dense, device=card), CONFIG)
    assert not records_steps("random", replace(dense, device=card), asked)
    assert not records_steps("random", replace(dense, device=card, kv_dtype="int8"), CONFIG)
    assert not records_steps("random", replace(whisper, device=card), CONFIG)
    monkeypatch.setattr(triton_jit, "is_installed", lambda: False)
    assert not records_steps("random", replace(dense, device=card), CONFIG)


def test_cuda_graphs_need_cuda(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"^random: --cuda-graphs is on, but the model runs on cpu"):
        load_model("random", str(folder), replace(CONFIG, cuda_graphs="on"))


@pytest.mark.parametrize("field", ["feature_size", "hop_length", "sampling_rate"])
@pytest.mark.parametrize("value", [None, 0, 2**40])
def test_features_that_are_not_the_models_are_refused_by_their_field(
    field: str, value: int | None, tmp_path: Path
) -> None:
    """Before any are asked for: each request failed, or all memory was taken."""
    whisper = shutil.copytree(random_folder(), tmp_path / "whisper")
    for folder in (whisper, make_asr_folder(tmp_path / "asr")):
        path = folder / "preprocessor_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
        with pytest.raises(ModelLoadError, match=rf"preprocessor_config\.json: .*{field}"):
            load_model("random", str(folder), CONFIG)


@pytest.mark.parametrize(("field", "value"), [("hop_length", 80), ("chunk_length", 30)])
def test_a_whisper_whose_windows_are_not_its_encoders_is_refused(
    field: str, value: int, tmp_path: Path
) -> None:
    whisper = shutil.copytree(random_folder(), tmp_path / "whisper")
    path = whisper / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(ModelLoadError, match=rf"preprocessor_config\.json: .*{field} {value} .* takes 200$"):
        load_model("random", str(whisper), CONFIG)


_LIGHT = """
import sys
import sensorium.actors.engine_process.__main__
from sensorium.actors import model_loading as models
from sensorium.engine.models.registry import open_model
for model in sys.argv[1:]:
    open_model(model, device="cpu", dtype="float32").load()
assert "torch" in sys.modules
compiler = {"sympy", "torch._dynamo", "torch.distributed.tensor"} & sys.modules.keys()
others = {"httpx", "onnxruntime", "starlette"} & sys.modules.keys()
assert not compiler | others, compiler | others
"""


def test_the_process_of_models_imports_what_it_needs(folder: Path) -> None:
    """torch's compiler takes seconds and 150 MiB, and no config but those of other architectures brings it
    along. What fetches files and scores sound takes 20 MiB, and only who faces clients has a use for it."""
    every = [*embedded_models(), str(folder)]
    done = subprocess.run([sys.executable, "-c", _LIGHT, *every], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
