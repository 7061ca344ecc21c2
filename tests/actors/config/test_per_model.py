"""Options for one of several models."""

from __future__ import annotations

import pytest
from sensorium.actors.config.server import EngineConfig, ServerConfig
from sensorium.actors.errors import ConfigError

MODELS = ("tiny-whisper", "Qwen/Qwen3-0.6B")


def config(*options: str, names: tuple[str, ...] = ()) -> ServerConfig:
    return ServerConfig(MODELS, names, engine=EngineConfig(max_context=512), model_options=options)


def test_they_hold_for_their_model_and_the_others_for_all() -> None:
    found = config(
        "tiny-whisper:kv-memory=1GiB", "Qwen/Qwen3-0.6B:dtype=float32", "Qwen/Qwen3-0.6B:cuda_graphs=off"
    )
    whisper, qwen = map(found.engine_of, MODELS)
    assert (whisper.kv_memory, whisper.dtype, whisper.max_context) == ("1GiB", "auto", 512)
    assert (qwen.kv_memory, qwen.dtype, qwen.cuda_graphs) == ("auto", "float32", "off")


def test_a_name_is_the_public_one_and_may_have_colons() -> None:
    found = config("asr:large:max-running=8", names=("asr:large", "text"))
    assert found.engine_of("asr:large").max_running == 8
    assert found.engine_of("text").max_running == 0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("tiny-whisper", "allowed: NAME:OPTION=VALUE"),
        ("dtype=float32", "allowed: NAME:OPTION=VALUE"),
        ("nobody:dtype=float32", "allowed names: tiny-whisper, Qwen/Qwen3-0.6B"),
        ("./asr:dtype=float32", "too: sensorium serve ./asr --model asr:dtype=float32"),
        (
            "openai/whisper-base:dtype=float32",
            "openai/whisper-base --model openai/whisper-base:dtype=float32",
        ),
        ("/models/tiny-whisper:max-running=8", "; use --model tiny-whisper:max-running=8"),
        ("tiny-whisper:port=1", "allowed options: block-size, chat-template, cuda-graphs"),
        ("tiny-whisper:dtype=int8", "Invalid enum value 'int8'; allowed: auto, float32, bfloat16, float16"),
        ("tiny-whisper:max-running=many", "Expected `int`"),
        ("tiny-whisper:max-running=9999", "--max-running is 9999; allowed: 0 to 4096"),
    ],
)
def test_what_is_wrong_is_said_at_once(option: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config(option)
    assert message in str(raised.value)
