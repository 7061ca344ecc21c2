"""Whisper under the runner: windows, probes, alignment errors, low precision (answers: test_exactness.py)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.base import CrossAttendingRows, EncoderOutput, StepBatch
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.whisper.model import CrossKeyValues, WhisperModel
from sensorium.engine.models.whisper.text import WhisperText
from sensorium.engine.planning.plan import (
    EncodeStep,
    Plan,
    SequenceId,
    SequenceStart,
    SequenceStep,
    WholeStep,
)
from sensorium.kernels.attention.kv_quantization import KvDtype, decode
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch
from sensorium.protocols.engine.messages import (
    Align,
    ContentHash,
    Features,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    TaskFailed,
    TokensAligned,
)
from support.plan_loop import Job, encode, run_jobs, to_features
from support.toy_runner import sampled
from support.whisper_folder import WhisperShape, make_whisper_folder
from transformers import WhisperForConditionalGeneration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_whisper_folder(tmp_path_factory.mktemp("whisper"), seed=3)


@pytest.fixture(scope="module")
def text(folder: Path) -> WhisperText:
    return WhisperText.from_folder(folder)


def load(folder: Path, dtype: str = "float32", kv_dtype: KvDtype = "auto") -> WhisperModel:
    model = open_model(folder, device="cpu", dtype=dtype, kv_dtype=kv_dtype).load()
    assert isinstance(model, WhisperModel)
    return model


def make_runner(folder: Path) -> Runner:
    return Runner(load(folder), num_blocks=64)


@pytest.fixture
def runner(folder: Path) -> Runner:
    return make_runner(folder)


def window(seed: int = 0) -> torch.Tensor:
    return torch.randn(80, 200, generator=torch.Generator().manual_seed(seed))


def first_step(text: WhisperText, number: int, *, slot: int | None = 0, block: int = 0) -> SequenceStep:
    prompt = text.prompt(language="en")
    begin = SequenceStart(RequestId("r"), prompt, (), Sample(text.sampling(num_prompt=len(prompt))))
    return SequenceStep(SequenceId(number), prompt, 0, (block,), slot, begin=begin)


def kept(runner: Runner, slot: int) -> CrossKeyValues:
    output = runner._encodings[slot]
    assert isinstance(output, CrossKeyValues)
    return output


def positions(output: EncoderOutput) -> torch.Tensor:
    """Keys and values, numbers or what codes stand for, by position."""
    assert isinstance(output, CrossKeyValues)
    numbers = decode(output.memory) if output.memory.dtype is torch.uint8 else output.memory
    return numbers.movedim(3, 0)[: output.num_positions]


def test_windows_announce_their_bytes(runner: Runner) -> None:
    """Of the default shape: 2 layers, width 32, 100 positions, float32."""
    result = runner.execute(Plan(0, encodes=(EncodeStep(1, to_features(window())),)))
    assert result.encoder_bytes == {1: 2 * 2 * 32 * 100 * 4}


def test_windows_of_several_lengths_are_encoded_together_and_alike(runner: Runner) -> None:
    lengths = (200, 20, 2, 120, 200)
    parts = [to_features(window(seed)[:, :frames]) for seed, frames in enumerate(lengths)]
    runner.execute(Plan(0, encodes=tuple(EncodeStep(slot, part) for slot, part in enumerate(parts))))
    for slot, part in enumerate(parts):
        runner.execute(Plan(0, encodes=(EncodeStep(99, part),)))
        together, alone = kept(runner, slot), kept(runner, 99)
        assert together.memory.shape[3] == lengths[slot] // 2
        torch.testing.assert_close(together.memory, alone.memory, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
@pytest.mark.parametrize("num_before", [2, 60, 198])
@torch.inference_mode()
def test_what_is_in_front_is_heard_and_not_kept(folder: Path, num_before: int, kv_dtype: KvDtype) -> None:
    model = load(folder, kv_dtype=kv_dtype)
    whole, other = to_features(window()), to_features(window(1)[:, :40])
    continued = msgspec.structs.replace(whole, num_before=num_before)
    model.check_features(continued)
    outputs = model.encode([whole, continued, other])
    full, part, other_rows = (positions(each) for each in outputs)
    assert torch.equal(full[num_before // 2 :], part)
    assert torch.equal(other_rows, positions(model.encode([other])[0]))


@pytest.mark.parametrize("num_before", [-2, 3, 200, 202])
def test_what_cannot_be_in_front(folder: Path, num_before: int) -> None:
    features = msgspec.structs.replace(to_features(window()), num_before=num_before)
    with pytest.raises(ValueError, match="cannot be context"):
        load(folder).check_features(features)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@torch.inference_mode()
def test_threads_change_no_bit_of_a_step(tmp_path: Path, dtype: str) -> None:
    """A step has more of them where nobody speaks: a file is answered as live speech is. Weights are large
    enough for every kernel to use them."""
    shape = WhisperShape(d_model=256, decoder_heads=4, decoder_ffn=1024)
    model = load(make_whisper_folder(tmp_path, seed=5, shape=shape), dtype)
    (output,) = model.encode([to_features(window())])
    for rows in (1, 3, 5):
        logits = []
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            sequences = [PagedSequence((i,), 0, 1) for i in range(rows)]
            paged = paged_batch(sequences, 16, torch.device("cpu"))
            ids, positions = torch.arange(7, 7 + rows), torch.zeros(rows, dtype=torch.int64)
            batch = StepBatch(ids, positions, paged, cross_attending=(CrossAttendingRows(output, rows),))
            cache = torch.zeros(model.kv_shape.cache_shape(rows, 16, model.dtype), dtype=model.dtype)
            logits.append(model.logits(model.forward(batch, cache)))
        torch.set_num_threads(1)
        assert torch.equal(*logits)


def test_a_part_of_a_window_is_encoded_as_transformers_layers_do(folder: Path, runner: Runner) -> None:
    """`transformers` takes whole windows only, so its encoder is told that a window is shorter."""
    frames = window(1)[:, :60]
    runner.execute(Plan(0, encodes=(EncodeStep(0, to_features(frames)),)))
    theirs: Any = WhisperForConditionalGeneration.from_pretrained(folder).eval().model
    encoder, layer = theirs.encoder, theirs.decoder.layers[0].encoder_attn
    encoder.config.max_source_positions = 30
    shorter: Any = torch.nn.Embedding(30, encoder.config.d_model, _weight=encoder.embed_positions.weight[:30])
    encoder.embed_positions = shorter
    with torch.inference_mode():
        hidden = encoder(frames[None]).last_hidden_state[0]
        keys = layer.k_proj(hidden).view(30, layer.num_heads, -1).transpose(0, 1)
    # Processors sum in different orders: on one of them 1.6e-5 apart.
    torch.testing.assert_close(kept(runner, 0).memory[0, 0], keys, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(80, 202), (80, 3), (80, 0), (79, 200), (200,)])
def test_features_that_are_no_part_of_a_window_fail_alone(runner: Runner, shape: tuple[int, ...]) -> None:
    encodes = (EncodeStep(0, to_features(torch.zeros(shape))), EncodeStep(1, to_features(window())))
    result = runner.execute(Plan(0, encodes=encodes))
    assert set(result.encode_errors) == {0}
    assert set(result.encoder_bytes) == {1}


def test_a_sequence_without_its_window_fails_alone(runner: Runner, text: WhisperText) -> None:
    encode(runner, [window()])
    alone = sampled(runner.execute(Plan(0, sequences=(first_step(text, 0),))))[0]
    steps = (first_step(text, 1, slot=3), first_step(text, 2), first_step(text, 3, slot=None))
    result = sampled(runner.execute(Plan(1, sequences=steps)))
    assert "window of this request is gone" in (result[0].error or "")
    assert result[1] == alone
    assert "window of this request is gone" in (result[2].error or "")


def test_faulty_windows_fail_alone(runner: Runner) -> None:
    good = to_features(window())
    not_finite = window()
    not_finite[3, 5] = math.nan
    encodes = (
        EncodeStep(0, Features((80, 100), b"")),
        EncodeStep(1, Features((80, 200), b"1234")),
        EncodeStep(2, good),
        EncodeStep(3, to_features(not_finite)),
    )
    result = runner.execute(Plan(0, encodes=encodes))
    assert set(result.encode_errors) == {0, 1, 3}
    assert set(result.encoder_bytes) == {2}


def test_a_window_that_overflows_poisons_its_listeners_only(runner: Runner, text: WhisperText) -> None:
    """Now, and for later users of their blocks."""
    encode(runner, [window(), window(1)])
    before = sampled(
        runner.execute(Plan(0, sequences=(first_step(text, 0), first_step(text, 1, slot=1, block=1))))
    )
    with torch.inference_mode():
        kept(runner, 0).memory[:, 1].fill_(math.nan)
    after = sampled(
        runner.execute(Plan(1, sequences=(first_step(text, 2), first_step(text, 3, slot=1, block=1))))
    )
    assert "not finite" in (after[0].error or "")
    assert after[1].token_ids == before[1].token_ids
    healthy = first_step(text, 4, slot=1, block=0)
    assert sampled(runner.execute(Plan(2, sequences=(healthy,))))[0].token_ids == before[1].token_ids


def test_windows_encoded_together_equal_windows_encoded_alone(folder: Path) -> None:
    together, alone = make_runner(folder), make_runner(folder)
    windows = [window(seed) for seed in range(6)]
    encode(together, windows)
    for slot, each in enumerate(windows):
        alone.execute(Plan(0, encodes=(EncodeStep(slot, to_features(each)),)))
        torch.testing.assert_close(kept(together, slot).memory, kept(alone, slot).memory)


@pytest.mark.parametrize("prompt_chunk", [1, 1000])
def test_no_speech_is_the_probability_transformers_has(
    folder: Path, text: WhisperText, runner: Runner, prompt_chunk: int
) -> None:
    encode(runner, [window()])
    request = text.request(language="de", previous_text="Hello there")
    assert request.probe is not None
    job = Job(request.prompt_token_ids, 0, request.sampling, probe=request.probe)
    run_jobs(runner, [job], prompt_chunk=prompt_chunk)
    model: Any = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(window()[None], decoder_input_ids=torch.tensor([request.prompt_token_ids])).logits
    want = logits[0, request.probe.position].softmax(-1)[request.probe.token_id]
    assert job.probability == pytest.approx(float(want), abs=1e-5)
    assert request.prompt_token_ids[request.probe.position] == text.start_id


def test_random_answers_do_not_depend_on_company_or_drafts(runner: Runner, text: WhisperText) -> None:
    encode(runner, [window(), window(1)])
    prompt = text.prompt(language="en")
    sampling = text.sampling(num_prompt=len(prompt), temperature=1.0, seed=7)
    sampling = msgspec.structs.replace(sampling, max_tokens=20)
    other = msgspec.structs.replace(sampling, seed=8)
    alone = Job(prompt, 0, sampling)
    run_jobs(runner, [alone])
    drafted = [Job(prompt, 0, sampling, draft=tuple(alone.tokens[:n]), joins_at=n % 3) for n in (0, 5, 20)]
    others = [Job(prompt, slot, other) for slot in (0, 1)]
    run_jobs(runner, [others[0], *drafted, others[1]])
    assert all(job.tokens == alone.tokens for job in drafted)
    assert drafted[2].num_steps < drafted[0].num_steps
    assert others[0].tokens != alone.tokens


def test_alignment_errors_are_reported_alone(runner: Runner) -> None:
    encode(runner, [window()])

    def command(name: str, tokens: tuple[int, ...], start: int, end: int) -> Request[Align]:
        return Request(RequestId(name), tokens, Align(start, end, 50), encoder_hash=ContentHash("h"))

    good, tokens = command("good", (1, 2, 3, 4), 1, 3), (1, 2, 3, 4)
    aligns = (
        WholeStep(command("gone", tokens, 1, 3), 2),
        WholeStep(good, 0),
        WholeStep(command("range", tokens, 0, 3), 0),
        WholeStep(command("vocab", (1, 10**6, 3), 1, 2), 0),
        WholeStep(command("empty", tokens, 2, 2), 0),
    )
    result = runner.execute(Plan(0, wholes=aligns)).wholes
    failed = {each.request_id for each in result.values() if isinstance(each, TaskFailed)}
    assert failed == {"gone", "range", "vocab"}
    aligned = result[RequestId("good")]
    assert isinstance(aligned, TokensAligned)
    assert len(aligned.boundaries) == 3
    assert result[RequestId("empty")] == TokensAligned(RequestId("empty"), (50,))


def test_bfloat16_errs_no_more_than_transformers(folder: Path) -> None:
    """Logits of 30 tokens behind a window, against float32: our rounding is not worse than theirs."""
    tokens = torch.arange(40, 70)

    def ours(dtype: str) -> torch.Tensor:
        model = load(folder, dtype)
        k = model.kv_shape
        paged = paged_batch([PagedSequence((0, 1), 0, 30)], 16, torch.device("cpu"))
        with torch.inference_mode():
            cache = torch.zeros(k.num_layers, 2, 2, k.num_kv_heads, 16, k.head_dim, dtype=model.dtype)
            listener = CrossAttendingRows(model.encode([to_features(window())])[0], 30)
            batch = StepBatch(tokens, torch.arange(30), paged, cross_attending=(listener,))
            return model.logits(model.forward(batch, cache))

    def theirs(dtype: torch.dtype) -> torch.Tensor:
        model: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=dtype).eval()
        with torch.inference_mode():
            logits: torch.Tensor = model(window()[None].to(dtype), decoder_input_ids=tokens[None]).logits
        return logits[0].float()

    exact = theirs(torch.float32)
    torch.testing.assert_close(ours("float32"), exact, rtol=1e-4, atol=1e-4)
    our_error = (ours("bfloat16") - exact).abs().mean()
    their_error = (theirs(torch.bfloat16) - exact).abs().mean()
    assert our_error < 1.3 * their_error


@torch.inference_mode()
def test_rows_may_listen_to_a_part_of_a_window(folder: Path) -> None:
    """As `transformers` does of an encoding that lacks the rest, beside rows that listen to all of it."""
    tokens, spans = torch.arange(40, 50), (None, (10, 33), (33, 200))
    model = load(folder, "float32")
    (output,) = model.encode([to_features(window())])
    paged = paged_batch([PagedSequence((i,), 0, 10) for i in range(3)], 16, torch.device("cpu"))
    cross_attending = tuple(CrossAttendingRows(output, 10, span) for span in spans)
    batch = StepBatch(tokens.repeat(3), torch.arange(10).repeat(3), paged, cross_attending=cross_attending)
    cache = torch.zeros(model.kv_shape.cache_shape(3, 16, model.dtype), dtype=model.dtype)
    found = model.logits(model.forward(batch, cache)).view(3, 10, -1)
    theirs: Any = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    encoded = theirs.model.encoder(window()[None]).last_hidden_state
    for logits, span in zip(found, spans, strict=True):
        states = encoded if span is None else encoded[:, slice(*span)]
        want = theirs(encoder_outputs=(states,), decoder_input_ids=tokens[None]).logits[0]
        torch.testing.assert_close(logits, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("span", [(0, 16), (32, 50), (37, 41), (48, 999), (-4, 3), (60, 60)])
@torch.inference_mode()
def test_a_part_of_a_coded_window_has_its_codes(folder: Path, span: tuple[int, int]) -> None:
    model = load(folder, "float32", kv_dtype="int8")
    (output,) = model.encode([to_features(window())])
    assert isinstance(output, CrossKeyValues)
    part = output.part(*span)
    first = min(max(span[0], 0), output.num_positions - 1)
    last = min(max(span[1], first + 1), output.num_positions)
    first -= first % 16
    assert part.num_positions == last - first
    whole = decode(output.memory)[..., first:last, :]
    assert torch.equal(decode(part.memory)[..., : part.num_positions, :], whole)


def test_warm_up_leaves_no_trace(runner: Runner, text: WhisperText) -> None:
    runner.warm_up()
    assert not runner._encodings
    assert sampled(runner.execute(Plan(0, sequences=(first_step(text, 0),))))[0].error is not None


def test_english_only_checkpoints_run(tmp_path: Path) -> None:
    folder = make_whisper_folder(tmp_path, shape=WhisperShape(multilingual=False))
    text, runner = WhisperText.from_folder(folder), make_runner(folder)
    encode(runner, [window()])
    prompt = text.prompt(language="en")
    assert prompt == (text.start_id, text.no_timestamps_id)
    job = Job(prompt, 0, SamplingParams(max_tokens=3))
    run_jobs(runner, [job])
    assert len(job.tokens) == 3
