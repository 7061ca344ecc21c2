"""Options of vLLM's are refused with what there is instead."""

from __future__ import annotations

import re

import pytest
from sensorium.actors.commands import app
from sensorium.actors.config.foreign_options import _OPTIONS, refuse_others
from sensorium.actors.errors import ConfigError

OURS = {each.name for each in app["serve"].assemble_argument_collection() if each.parse}


def test_what_is_named_instead_are_options_and_what_is_refused_is_none() -> None:
    named = {name for instead in _OPTIONS.values() for name in re.findall(r"--[a-z-]+", instead)}
    assert named <= OURS
    assert not OURS & _OPTIONS.keys()


@pytest.mark.parametrize(
    ("tokens", "meaning"),
    [
        (["--max-model-len", "4096"], "--max-model-len is not an option: it is called --max-context here"),
        (["tiny-whisper", "--max_num_seqs=8"], "--max-num-seqs is not an option: .*--max-running"),
        (["--no-enable-prefix-caching"], "--no-enable-prefix-caching is not an option: prefixes"),
        (["--max-num-batched-tokens", "8192"], "tokens is not an option: long prompts are computed in parts"),
        (["--tokenizer", "x"], "--tokenizer is not an option: .* the model's folder"),
        (["-tp", "2"], "-tp is not an option: a model runs on one device"),
    ],
)
def test_what_is_meant_is_said(tokens: list[str], meaning: str) -> None:
    with pytest.raises(ConfigError, match=meaning):
        refuse_others(["serve", *tokens])


def test_our_own_options_pass() -> None:
    refuse_others(["serve", "tiny-whisper", *sorted(OURS)])
