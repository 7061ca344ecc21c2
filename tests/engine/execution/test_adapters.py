"""Rows with adapters get what a checkpoint with the same changes in its weights gives, others what they would
without: in one step, in chunks, preempted, beside replayed steps, in encodes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.whisper.model import CrossKeyValues
from sensorium.engine.planning.plan import EncodeStep, Plan
from sensorium.kernels.linear.row_adapters import Adapter
from sensorium.protocols.engine.messages import Features, SamplingParams
from support.adapted_folder import make_adapter, merged_folder
from support.plan_loop import Job, run_jobs, to_features
from support.rerun_graphs import RerunGraphs
from support.text_folder import make_qwen3_folder, make_text_folder
from support.whisper_folder import make_whisper_folder
from transformers import Gemma2Config

NUM_JOBS = 9


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def make_folder(path: Path, family: str) -> tuple[Path, str]:
    """A checkpoint, and what its tensors' names begin with that the family leaves out."""
    if family == "qwen3":
        return make_qwen3_folder(path, seed=3), "model."
    config = Gemma2Config(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        sliding_window=512,
    )
    return make_text_folder(path, config, seed=3), ""


def make_runner(
    folder: Path,
    adapters: Mapping[str, Adapter] | None = None,
    graphs: RerunGraphs | bool = False,
) -> Runner:
    """Of a model that is opened as adaptable where there are adapters."""
    adaptable = adapters is not None
    source = open_model(folder, device="cpu", dtype="float32", adaptable=adaptable)
    assert source.info.is_adaptable == adaptable
    return Runner(source.load(), num_blocks=300, block_size=16, adapters=adapters, cuda_graphs=graphs)


def make_jobs(seed: int) -> list[Job]:
    """Without adapters; some come later than others."""
    rng = random.Random(seed)
    jobs = []
    for _ in range(NUM_JOBS):
        prompt = tuple(rng.randrange(280) for _ in range(rng.randint(1, 40)))
        sampling = SamplingParams(max_tokens=8, ignore_eos=True, logprobs=0)
        jobs.append(Job(prompt, None, sampling, joins_at=rng.randrange(5)))
    return jobs


def answers(runner: Runner, jobs: list[Job], **options: int) -> list[Job]:
    run_jobs(runner, jobs, **options)
    assert not [job.error for job in jobs if job.error is not None]
    return jobs


def check_alike(got: Job, want: Job) -> None:
    assert got.tokens == want.tokens
    assert got.logprobs == pytest.approx(want.logprobs, abs=1e-3)


@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
def test_adapters_change_exactly_their_rows(tmp_path: Path, family: str) -> None:
    """Every third request has no adapter, the others one of two; Gemma 2 is run by `transformers`."""
    folder, drop = make_folder(tmp_path / "base", family)
    adapters = {
        "attention": make_adapter(folder, ("q_proj", "v_proj", "o_proj"), seed=1, drop=drop),
        "mlp": make_adapter(folder, ("gate_proj", "down_proj", "1.self_attn.k_proj"), seed=2, drop=drop),
    }
    want: dict[str | None, list[Job]] = {None: answers(make_runner(folder), make_jobs(7))}
    for name, adapter in adapters.items():
        merged = merged_folder(folder, tmp_path / name, adapter, drop=drop)
        want[name] = answers(make_runner(merged), make_jobs(7))
        changed = [job.tokens != plain.tokens for job, plain in zip(want[name], want[None], strict=True)]
        assert sum(changed) > NUM_JOBS // 2, "the change shows"
    runner = make_runner(folder, adapters)
    names = (None, *adapters)
    jobs = [replace(job, adapter=names[i % 3]) for i, job in enumerate(make_jobs(7))]
    answers(runner, jobs, prompt_chunk=11, preempt_every=6)
    for i, job in enumerate(jobs):
        check_alike(job, want[job.adapter][i])
    for got, plain in zip(answers(runner, make_jobs(7)), want[None], strict=True):
        check_alike(got, plain)


def test_steps_with_adapters_are_not_replayed(tmp_path: Path) -> None:
    folder, drop = make_folder(tmp_path / "base", "qwen3")
    adapter = make_adapter(folder, ("q_proj", "down_proj"), seed=1, drop=drop)
    merged = merged_folder(folder, tmp_path / "merged", adapter, drop=drop)
    backend = RerunGraphs()
    runner = make_runner(folder, {"one": adapter}, backend)
    runner.warm_up()
    num_before = backend.num_replayed
    adapted = answers(runner, [replace(job, adapter="one") for job in make_jobs(7)])
    assert backend.num_replayed == num_before
    plain = answers(runner, make_jobs(7))
    assert backend.num_replayed > num_before + 5
    for got, want in zip(adapted, answers(make_runner(merged), make_jobs(7)), strict=True):
        check_alike(got, want)
    for got, want in zip(plain, answers(make_runner(folder), make_jobs(7)), strict=True):
        check_alike(got, want)


def test_an_encode_has_an_adapter_of_its_own(tmp_path: Path) -> None:
    """Three windows in one plan; the second's is Whisper's with changes in encoder and cross-attention."""
    folder, drop = make_whisper_folder(tmp_path / "base", seed=3), "model."
    adapter = make_adapter(folder, ("q_proj", "v_proj", "fc1"), seed=1, drop=drop)
    merged = merged_folder(folder, tmp_path / "merged", adapter, drop=drop)
    generator = torch.Generator().manual_seed(5)
    windows = [to_features(torch.randn(80, 200, generator=generator)) for _ in range(3)]
    runner = make_runner(folder, {"one": adapter})
    names = (None, "one", None)
    encodes = tuple(EncodeStep(slot, windows[slot], names[slot]) for slot in range(3))
    assert not runner.execute(Plan(0, encodes=encodes)).encode_errors
    for slot, name in enumerate(names):
        alone = make_runner(folder if name is None else merged)
        alone.execute(Plan(0, encodes=(EncodeStep(slot, windows[slot]),)))
        torch.testing.assert_close(memory(runner, slot), memory(alone, slot), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(memory(runner, 1), memory_of_plain(folder, windows[1]), atol=1e-2)
    sampling = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=0)
    heard = Job((5, 6, 7), 1, sampling, adapter="one")
    plain = Job((5, 6, 7), 0, sampling)
    answers(runner, [heard, plain])
    alone = make_runner(merged)
    alone.execute(Plan(0, encodes=(EncodeStep(1, windows[1]),)))
    (want,) = answers(alone, [Job((5, 6, 7), 1, sampling)])
    check_alike(heard, want)


def memory(runner: Runner, slot: int) -> torch.Tensor:
    output = runner._encodings[slot]
    assert isinstance(output, CrossKeyValues)
    return output.memory


def memory_of_plain(folder: Path, features: Features) -> torch.Tensor:
    runner = make_runner(folder)
    runner.execute(Plan(0, encodes=(EncodeStep(0, features),)))
    return memory(runner, 0)


def test_an_adapter_that_is_not_loaded_fails_its_own_request(tmp_path: Path) -> None:
    folder, drop = make_folder(tmp_path / "base", "qwen3")
    runner = make_runner(folder, {"one": make_adapter(folder, ("q_proj",), seed=1, drop=drop)})
    names = ("two", None, "one")
    jobs = [replace(job, adapter=name) for job, name in zip(make_jobs(1)[:3], names, strict=True)]
    run_jobs(runner, jobs)
    assert jobs[0].error == "the adapter two is not loaded; loaded are: one"
    assert [job.error for job in jobs[1:]] == [None, None]


def test_an_encode_with_an_adapter_that_is_not_loaded_fails_alone(tmp_path: Path) -> None:
    runner = make_runner(make_whisper_folder(tmp_path / "base", seed=3), {})
    window = to_features(torch.randn(80, 200, generator=torch.Generator().manual_seed(5)))
    result = runner.execute(Plan(0, encodes=(EncodeStep(4, window, "two"), EncodeStep(5, window))))
    assert result.encode_errors == {4: "the adapter two is not loaded; loaded are: none"}
    assert set(result.encoder_bytes) == {5}
