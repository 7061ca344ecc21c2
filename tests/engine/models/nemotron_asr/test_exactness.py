"""Nemotron's answers are those of `transformers`, token for token and row for row, whatever else is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.base import ChunkBatch, ChunkInput, TransducingModel
from sensorium.engine.models.nemotron_asr.chunks import chunk_frames
from sensorium.engine.models.registry import open_model
from sensorium.media.audio.nemo_features import NemoFeatureConfig, log_mel
from sensorium.protocols.engine.messages import Features, InputChunk, Transduce
from support.nemotron_folder import ConformerShape, make_nemotron_folder
from support.transducing import (
    FedStream,
    Feeder,
    FloatArray,
    Placed,
    cut,
    noise,
    reference_streamed,
    reference_whole,
)
from transformers import DynamicCache, Nemotron3_5AsrForRNNT, NemotronAsrStreamingForRNNT
from transformers.models.nemotron_asr_streaming.modeling_nemotron_asr_streaming import (
    NemotronAsrStreamingEncoderCausalConvPaddingCache,
)

NUM_SLOTS = 12
LANGUAGE = 9
CASES = [("english", lookahead) for lookahead in (13, 6, 1, 0)]
CASES += [("multilingual", lookahead) for lookahead in (13, 6, 3, 1, 0)]


@dataclass(frozen=True)
class Checkpoint:
    """A folder, its model here, and the one of `transformers`."""

    folder: Path
    feeder: Feeder
    reference: Any
    condition: int
    options: dict[str, torch.Tensor]

    def transduced(
        self, frames: FloatArray, lookahead: int, ends: bool = True, at_once: Sequence[int] = (1,)
    ) -> Placed:
        """Alone."""
        stream = self.stream(frames, lookahead, 0, ends=ends, at_once=at_once)
        self.feeder.feed(stream)
        return stream.tokens

    def stream(
        self, frames: FloatArray, lookahead: int, slot: int, ends: bool = True, at_once: Sequence[int] = (1,)
    ) -> FedStream:
        """A request for it."""
        return FedStream(
            Transduce(lookahead, self.condition), cut(frames, lookahead, ends=ends, at_once=at_once), slot
        )


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    folder = tmp_path_factory.mktemp("nemotron")
    shapes = {
        "english": ConformerShape(),
        "multilingual": ConformerShape(
            num_mel_bins=128, has_bias=False, scale_input=False, sliding_window=57
        ),
    }
    made = {}
    for name, shape in shapes.items():
        is_multilingual = name == "multilingual"
        bias = 0.9 if is_multilingual else 3.0
        path = make_nemotron_folder(folder / name, shape, multilingual=is_multilingual, blank_bias=bias)
        kind: Any = Nemotron3_5AsrForRNNT if is_multilingual else NemotronAsrStreamingForRNNT
        model = open_model(path, device="cpu", dtype="float32").load()
        made[name] = Checkpoint(
            path,
            Feeder(Runner(model, num_blocks=1, num_state_slots=NUM_SLOTS)),
            kind.from_pretrained(path, dtype=torch.float32).eval(),
            LANGUAGE if is_multilingual else 0,
            {"prompt_ids": torch.tensor([LANGUAGE])} if is_multilingual else {},
        )
    return made


def frames_of(checkpoint: Checkpoint, seconds: float, seed: int = 0) -> FloatArray:
    """Features of noise."""
    num_mel_bins = checkpoint.reference.config.encoder_config.num_mel_bins
    return log_mel(noise(seconds, seed), NemoFeatureConfig(num_mel_bins))


@pytest.mark.parametrize(("name", "lookahead"), CASES)
def test_whole_chunks_are_the_streamed_answer_and_the_end_is_the_offline_one(
    checkpoints: dict[str, Checkpoint], name: str, lookahead: int
) -> None:
    """6.7 s are over the window of attention; the last chunk has a part of its rows."""
    checkpoint = checkpoints[name]
    frames = frames_of(checkpoint, 6.73)
    with torch.no_grad():
        streamed = reference_streamed(checkpoint.reference, frames, lookahead, checkpoint.options)
        whole = reference_whole(checkpoint.reference, frames, lookahead, checkpoint.options)
    assert checkpoint.transduced(frames, lookahead, ends=False) == streamed
    assert checkpoint.transduced(frames, lookahead) == whole
    assert len({token for token, _ in whole}) > 3
    assert len({row for _, row in whole}) > 5


@pytest.mark.parametrize(
    ("seconds", "seed"), [(0.01, 1), (0.07, 2), (0.3, 3), (0.49, 4), (0.57, 5), (1.06, 6)]
)
def test_short_inputs_are_the_offline_answer(
    checkpoints: dict[str, Checkpoint], seconds: float, seed: int
) -> None:
    """Also those that end within the first chunk, or with it."""
    for name, lookahead in (("english", 6), ("multilingual", 0)):
        checkpoint = checkpoints[name]
        frames = frames_of(checkpoint, seconds, seed)
        with torch.no_grad():
            whole = reference_whole(checkpoint.reference, frames, lookahead, checkpoint.options)
        assert checkpoint.transduced(frames, lookahead) == whole


@pytest.mark.parametrize(("name", "lookahead"), [("english", 6), ("english", 0), ("multilingual", 3)])
def test_it_does_not_matter_how_many_chunks_are_a_step(
    checkpoints: dict[str, Checkpoint], name: str, lookahead: int
) -> None:
    """As when input is fed again: steps that are longer than the window of attention, too."""
    checkpoint = checkpoints[name]
    frames = frames_of(checkpoint, 9.1)
    alone = checkpoint.transduced(frames, lookahead)
    for at_once in ((2,), (1, 3, 5), (16,), (1, 100 // (lookahead + 1))):
        assert checkpoint.transduced(frames, lookahead, at_once=at_once) == alone


def test_streams_of_other_ages_and_lookaheads_change_nothing(checkpoints: dict[str, Checkpoint]) -> None:
    """Eight in every step: each begins two steps behind the one before, and has its own length."""
    for checkpoint in checkpoints.values():
        inputs = [frames_of(checkpoint, 2.0 + 0.37 * index, index) for index in range(8)]
        lookaheads = (6, 0, 13, 1, 6, 6, 1, 13)
        alone = [checkpoint.transduced(*each) for each in zip(inputs, lookaheads, strict=True)]
        streams = [
            checkpoint.stream(frames, lookahead, slot, at_once=(1, 2) if slot % 3 else (1,))
            for slot, (frames, lookahead) in enumerate(zip(inputs, lookaheads, strict=True))
        ]
        for step in range(200):
            begun = [each for index, each in enumerate(streams) if 2 * index <= step]
            left = [each for each in begun if each.num_fed < len(each.chunks)]
            checkpoint.feeder.step(left[::-1] if step % 2 else left)
        assert all(each.num_fed == len(each.chunks) for each in streams)
        assert [each.tokens for each in streams] == alone
        assert sum(map(len, alone)) > 100


@pytest.mark.parametrize("lookahead", [6, 0])
def test_a_fork_is_the_answer_if_the_input_ended_here(
    checkpoints: dict[str, Checkpoint], lookahead: int
) -> None:
    """And the input it was forked from goes on as if there had been none."""
    for checkpoint in checkpoints.values():
        frames = frames_of(checkpoint, 7.0, seed=5)
        stream = checkpoint.stream(frames, lookahead, 2)
        num_heard = 0
        for index in range(len(stream.chunks) - 1):
            checkpoint.feeder.step([stream])
            num_heard += chunk_frames(lookahead, is_first=index == 0)
            if index in (0, 3, 9):
                end = num_heard + 5
                fork = stream.fork(7, cut(frames[:, :end], lookahead)[-1:])
                checkpoint.feeder.step([fork], copies=[(2, 7)])
                assert fork.tokens == checkpoint.transduced(frames[:, :end], lookahead)
        checkpoint.feeder.step([stream])
        assert stream.tokens == checkpoint.transduced(frames, lookahead)


def test_an_input_may_end_behind_its_last_whole_chunk(checkpoints: dict[str, Checkpoint]) -> None:
    """Beside another that goes on, and alone: no frame is left, and so no row."""
    checkpoint = checkpoints["english"]
    frames = frames_of(checkpoint, 4.0)[:, : 49 + 4 * 56]
    empty = InputChunk(Features((80, 0), b""), 0, is_last=True)
    streams = [checkpoint.stream(frames, 6, slot, ends=False) for slot in (0, 1)]
    streams[0].chunks.append(empty)
    other = checkpoint.stream(frames_of(checkpoint, 6.0, seed=2), 6, 2)
    checkpoint.feeder.feed(streams[0], other)
    checkpoint.feeder.feed(streams[1])
    streams[1].chunks.append(empty)
    checkpoint.feeder.feed(streams[1])
    assert streams[0].tokens == streams[1].tokens == checkpoint.transduced(frames, 6) != []
    assert other.tokens == checkpoint.transduced(frames_of(checkpoint, 6.0, seed=2), 6)


def test_fed_again_into_a_used_slot_it_is_the_same(checkpoints: dict[str, Checkpoint]) -> None:
    checkpoint = checkpoints["english"]
    frames, other = frames_of(checkpoint, 4.0), frames_of(checkpoint, 3.0, seed=8)
    stream = checkpoint.stream(frames, 1, 4)
    checkpoint.feeder.feed(stream, checkpoint.stream(other, 1, 5))
    again = checkpoint.stream(frames, 1, 5)
    checkpoint.feeder.feed(again)
    assert again.tokens == stream.tokens != []


def test_the_language_prompt_is_heeded(checkpoints: dict[str, Checkpoint]) -> None:
    """Two languages in one step."""
    checkpoint = checkpoints["multilingual"]
    frames = frames_of(checkpoint, 4.0)
    streams = [FedStream(Transduce(6, condition), cut(frames, 6), condition) for condition in (3, 11)]
    checkpoint.feeder.feed(*streams)
    for stream in streams:
        prompt = {"prompt_ids": torch.tensor([stream.task.condition])}
        with torch.no_grad():
            assert stream.tokens == reference_whole(checkpoint.reference, frames, 6, prompt)
    assert streams[0].tokens != streams[1].tokens


@pytest.mark.parametrize("lookahead", [13, 6, 1, 0])
def test_rows_are_those_of_the_streamed_encoder(checkpoints: dict[str, Checkpoint], lookahead: int) -> None:
    checkpoint = checkpoints["english"]
    model = open_model(checkpoint.folder, device="cpu", dtype="float32").load()
    assert isinstance(model, TransducingModel)
    task = Transduce(lookahead)
    encoder = checkpoint.reference.encoder
    past, padding = (
        DynamicCache(config=encoder.config),
        NemotronAsrStreamingEncoderCausalConvPaddingCache(),
    )
    slots, num_rows = torch.tensor([1]), 0
    with torch.inference_mode():
        model.make_states(2)
        for chunk in cut(frames_of(checkpoint, 8.0), lookahead, ends=False):
            values = torch.frombuffer(bytearray(chunk.features.data), dtype=torch.float32)
            features = values.view(chunk.features.shape)
            given = ChunkInput(features, chunk.num_valid, num_rows == 0, False, task, num_rows)
            batch = ChunkBatch((given,), slots)
            listened = model.listen(batch)
            expected = encoder(
                input_features=features.t()[None],
                past_key_values=past,
                padding_cache=padding,
                num_lookahead_tokens=lookahead,
                use_cache=True,
            ).last_hidden_state[0]
            torch.testing.assert_close(listened.rows, expected, atol=2e-4, rtol=1e-4)
            model.commit(batch, listened, model.emit(listened, batch))
            num_rows += listened.num_rows[0]
    assert num_rows > 80


def test_log_probabilities_are_the_joints(checkpoints: dict[str, Checkpoint]) -> None:
    for checkpoint in checkpoints.values():
        frames = frames_of(checkpoint, 3.0)
        wanted = FedStream(Transduce(6, checkpoint.condition, logprobs=True), cut(frames, 6), 0)
        unwanted = checkpoint.stream(frames, 6, 1)
        checkpoint.feeder.feed(wanted, unwanted)
        assert not unwanted.logprobs
        start = checkpoint.reference.config.blank_token_id
        decoded = torch.tensor([[start, *(token for token, _ in wanted.tokens)]])
        values = torch.from_numpy(frames).t()[None].contiguous()
        with torch.no_grad():
            output = checkpoint.reference(
                input_features=values,
                attention_mask=torch.ones(values.shape[:2], dtype=torch.bool),
                decoder_input_ids=decoded,
                num_lookahead_tokens=6,
                **checkpoint.options,
            )
        table = output.logits[0].log_softmax(-1)
        expected = [float(table[row, index, token]) for index, (token, row) in enumerate(wanted.tokens)]
        assert wanted.logprobs == pytest.approx(expected, abs=1e-3)
        assert len(expected) > 5


def test_what_is_behind_the_end_is_not_seen(checkpoints: dict[str, Checkpoint]) -> None:
    """A last chunk may be as long as its frames, or padded with anything."""
    checkpoint = checkpoints["english"]
    frames = frames_of(checkpoint, 2.0)
    padded = checkpoint.stream(frames, 13, 0)
    exact = checkpoint.stream(frames, 13, 1)
    last = exact.chunks[-1]
    begin = frames.shape[1] - last.num_valid
    assert padded.chunks[-1].features.shape[1] > last.num_valid > 0
    cropped = frames[:, begin:].astype("float32")
    exact.chunks[-1] = type(last)(
        type(last.features)(cropped.shape, cropped.tobytes()), last.num_valid, is_last=True
    )
    checkpoint.feeder.feed(padded, exact)
    assert padded.tokens == exact.tokens != []
    assert padded.num_rows == exact.num_rows
