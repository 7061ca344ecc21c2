"""The Whisper runner under the real scheduler keeps the promises that the fake one keeps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.whisper.text import WhisperText
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.protocols.engine.messages import ContentHash, EncoderItem, Request, RequestId, Sample
from support.plan_loop import to_features
from support.runner_conformance import RunnerCase, check_runner
from support.whisper_folder import make_whisper_folder

NUM_BLOCKS = 64
BLOCK_SIZE = 4


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_whisper_runner(tmp_path: Path, temperature: float) -> None:
    torch.set_num_threads(1)
    folder = make_whisper_folder(tmp_path / "model", seed=5)
    text, model = WhisperText.from_folder(folder), open_model(folder, device="cpu", dtype="float32").load()
    info = text.info
    generator = torch.Generator().manual_seed(11)
    items = [
        EncoderItem(
            ContentHash(f"window {i}"),
            to_features(torch.randn(info.num_mel_bins, 2 * info.num_positions, generator=generator)),
        )
        for i in range(3)
    ]
    requests = []
    for number in range(4):
        plain = text.request(
            language=("en", "de")[number % 2],
            task="transcribe",
            previous_text="",
            temperature=temperature,
            seed=number,
        )
        sampling = msgspec.structs.replace(plain.sampling, max_tokens=24)
        content_hash = items[number % 3].content_hash
        requests.append(
            Request(RequestId(f"r{number}"), plain.prompt_token_ids, Sample(sampling), content_hash)
        )
    check_runner(
        RunnerCase(
            make_runner=lambda: Runner(model, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, num_threads=1),
            items=items,
            requests=requests,
            config=SchedulerConfig(
                num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, max_context=info.max_context
            ),
        )
    )
