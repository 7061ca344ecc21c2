"""A family nobody knew opens, loads and runs, with a folder (`support/ctc/`) and one line in the registry."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models import families
from sensorium.engine.models.registry import open_model
from sensorium.media.audio.features import FeatureConfig
from sensorium.protocols.engine.messages import SamplingParams
from sensorium.protocols.errors import ModelLoadError
from support.ctc.folder import ENTRY, make_ctc_folder, transcript_of
from support.ctc.text import BLANK, END
from support.features import log_mel
from support.plan_loop import Job, encode, run_jobs

SPEECH = Path(__file__).parents[3] / "examples" / "data" / "kitchen_lights.wav"


def test_without_its_line_it_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="architecture 'RandomCtc' is not supported"):
        open_model(make_ctc_folder(tmp_path / "ctc"), device="cpu")


@pytest.mark.parametrize("preempt_every", [None, 5])
def test_it_opens_encodes_and_is_read_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preempt_every: int | None
) -> None:
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, ENTRY))
    folder = make_ctc_folder(tmp_path / "ctc")
    source = open_model(folder, device="cpu", dtype="float32")
    assert source.info.describe() == "random_ctc · 52 tokens of context"
    assert source.side.prompts is None
    assert source.side.speech is not None
    speech = soundfile.read(SPEECH, dtype="float32")[0]
    windows = (speech[:32_000], speech[32_000:60_000])
    runner = Runner(source.load(), num_blocks=12)
    runner.warm_up()
    config = FeatureConfig.from_folder(folder, source.info.extractors)
    encode(runner, [torch.from_numpy(log_mel(config, window)) for window in windows])
    jobs = [Job((BLANK,), slot, SamplingParams(max_tokens=51, stop_token_ids=(END,))) for slot in (0, 1, 0)]
    run_jobs(runner, jobs, preempt_every=preempt_every)
    texts = [source.side.text.decode(job.tokens) for job in jobs]
    assert texts == [transcript_of(folder, windows[slot]) for slot in (0, 1, 0)]
    assert min(map(len, texts)) > 10
    assert [job.finish for job in jobs] == ["stop"] * 3
