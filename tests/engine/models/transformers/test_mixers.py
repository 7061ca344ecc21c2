"""Each recurrent layer of `transformers`, over whole sequences, equals ours over packed pieces of them."""

from __future__ import annotations

import random
from typing import cast

import pytest
import torch
from sensorium.engine.models.mixers import slots
from sensorium.engine.models.mixers.slots import MixerStates
from sensorium.engine.models.transformers.mixer import Mixer
from sensorium.engine.models.transformers.mixers import mixers_of, replace_mixers
from support.recurrent_families import FAMILIES, recurrent_config
from support.text_folder import randomise
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

_LENGTHS = (1, 5, 70, 130, 2)
_NUM_SLOTS = 7
_CLOSE = 1e-3
"""Of float32 numbers that hundreds of rows were added up to."""


def decoder_of(model_type: str) -> nn.Module:
    model = AutoModelForCausalLM.from_config(recurrent_config(model_type), dtype=torch.float32).eval()
    randomise(model, seed=1)
    return cast(nn.Module, getattr(model, model.base_model_prefix))


@pytest.mark.parametrize("model_type", FAMILIES)
@torch.inference_mode()
def test_a_layer_over_pieces_in_any_company_equals_the_whole(model_type: str) -> None:
    decoder = decoder_of(model_type)
    states = MixerStates()
    mixers = mixers_of(decoder, states)
    assert mixers
    generator = torch.Generator().manual_seed(0)
    for name, mixer in mixers.items():
        inputs = [torch.randn(length, 32, generator=generator) for length in _LENGTHS]
        expected = [decoder.get_submodule(name)(hidden_states=rows[None])[0] for rows in inputs]
        numbers = states.allocate(_NUM_SLOTS, torch.device("cpu"))
        for output, wanted in zip(_in_pieces(mixer, states, inputs), expected, strict=True):
            torch.testing.assert_close(output, wanted, rtol=_CLOSE, atol=_CLOSE)
        assert not numbers[[0, 3]].any(), "slots of others are left alone"
        others = [each for each in mixers.values() if each is not mixer]
        assert others, "each shape has two recurrent layers"
        held = [_numbers_of(each, states, numbers) for each in others]
        assert not any(each.any() for each in held), "and so are states of other layers"


@pytest.mark.parametrize("model_type", ["qwen3_5_text", "mamba"])
def test_so_does_a_layer_without_our_kernels(monkeypatch: pytest.MonkeyPatch, model_type: str) -> None:
    monkeypatch.setattr(slots, "can_run_in_slots", lambda numbers: False)
    test_a_layer_over_pieces_in_any_company_equals_the_whole(model_type)


def _in_pieces(mixer: Mixer, states: MixerStates, inputs: list[Tensor]) -> list[Tensor]:
    rng, own_slots, fed = random.Random(0), (5, 2, 6, 1, 4), [0] * len(inputs)
    outputs: list[list[Tensor]] = [[] for _ in inputs]
    while live := [i for i, rows in enumerate(inputs) if fed[i] < len(rows)]:
        members = rng.sample(live, rng.randint(1, len(live)))
        counts = [min(rng.choice((1, 2, 33, 100)), len(inputs[i]) - fed[i]) for i in members]
        rows = torch.cat([inputs[i][fed[i] : fed[i] + n] for i, n in zip(members, counts, strict=True)])
        with states.step(torch.tensor([own_slots[i] for i in members]), counts):
            output = mixer(rows[None], cache_params=None, attention_mask=None)[0]
        for i, part in zip(members, output.split(counts), strict=True):
            outputs[i].append(part)
            fed[i] += len(part)
    return [torch.cat(each) for each in outputs]


def _numbers_of(mixer: Mixer, states: MixerStates, numbers: Tensor) -> Tensor:
    return torch.cat([numbers[:, each.start : each.start + each.size] for each in mixer.places], 1)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_weights_keep_their_names(model_type: str) -> None:
    decoder = decoder_of(model_type)
    before = {name: parameter.shape for name, parameter in decoder.named_parameters()}
    states = replace_mixers(decoder)
    assert {name: parameter.shape for name, parameter in decoder.named_parameters()} == before
    assert sum(isinstance(module, Mixer) for module in decoder.modules()) >= 2
    assert states


def test_a_decoder_without_recurrent_layers_is_left_as_it_is() -> None:
    decoder = nn.Sequential(nn.Linear(2, 2))
    assert not replace_mixers(decoder)


def test_states_are_read_within_a_step_only() -> None:
    states = MixerStates()
    place = states.reserve(2, 3)
    states.allocate(1, torch.device("cpu"))
    with pytest.raises(AssertionError, match="within a step"):
        states.read(place)
