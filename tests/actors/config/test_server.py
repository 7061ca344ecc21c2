"""A configuration is checked once, and an error names the option, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sensorium.actors.config.server import (
    EngineConfig,
    FetchConfig,
    FileConfig,
    ListenConfig,
    RealtimeConfig,
    ServerConfig,
)
from sensorium.actors.errors import ConfigError
from sensorium.engine.models.memory import MemorySize


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ListenConfig(host=" "),
            "--host is ''; allowed: an address or a name; 0.0.0.0 is every address",
        ),
        (lambda: ListenConfig(port=-1), "--port is -1; allowed: 0 to 65535"),
        (lambda: ListenConfig(api_key=(" ",)), "--api-key is ''; allowed: a text that is not empty"),
        (
            lambda: ListenConfig(allowed_origins=("https://app.example.com/",)),
            (
                "--allowed-origins is 'https://app.example.com/'; allowed: *, null, or a scheme and a host "
                "as https://app.example.com, without a path"
            ),
        ),
        (
            lambda: ListenConfig(allowed_hosts=("https://app.example.com",)),
            (
                "--allowed-hosts is 'https://app.example.com'; allowed: *, or a name as asr.example.com or "
                "*.example.com, without scheme and port"
            ),
        ),
        (lambda: ListenConfig(drain_s=-1), "--drain-s is -1; allowed: at least 0"),
        (lambda: EngineConfig(block_size=0), "--block-size is 0; allowed: 1 to 256"),
        (
            lambda: EngineConfig(kv_memory="lots"),
            "--kv-memory is 'lots'; allowed: auto, a size as 2GiB or 512MiB, or a share as 0.5",
        ),
        (
            lambda: EngineConfig(encoder_memory="-1"),
            "--encoder-memory is '-1'; allowed: auto, a size as 2GiB or 512MiB, or a share as 0.5",
        ),
        (
            lambda: EngineConfig(pin_kernels="linear"),
            "--pin-kernels is 'linear'; allowed: as linear=onednn,attention=fused",
        ),
        (lambda: EngineConfig(plans_in_flight=3), "--plans-in-flight is 3; allowed: 0 to 2"),
        (lambda: EngineConfig(step_timeout_s=0), "--step-timeout-s is 0; allowed: at least 0.1"),
        (lambda: FetchConfig(fetch_timeout_s=0), "--fetch-timeout-s is 0; allowed: 0.1 to 600"),
        (
            lambda: FetchConfig(allowed_media_domains=("https://a.example",)),
            (
                "--allowed-media-domains is 'https://a.example'; allowed: a name as images.example.com or "
                "*.example.com, without scheme and port"
            ),
        ),
        (
            lambda: FetchConfig(allowed_media_networks=("10.0.0.1/8",)),
            (
                "--allowed-media-networks is '10.0.0.1/8'; allowed: a network as 10.1.0.0/16 or fd00::/8, or "
                "an address"
            ),
        ),
        (
            lambda: FetchConfig(allowed_media_folder=(Path("/no/folder"),)),
            "--allowed-media-folder is '/no/folder'; allowed: a folder that is there",
        ),
        (lambda: FileConfig(max_audio_s=0), "--max-audio-s is 0; allowed: at least 0.1"),
        (lambda: FileConfig(max_image_pixels=10), "--max-image-pixels is 10; allowed: at least 65536"),
        (lambda: FileConfig(max_media_items=0), "--max-media-items is 0; allowed: at least 1"),
        (
            lambda: FileConfig(media_memory="0.5"),
            "--media-memory is '0.5'; allowed: a size as 2GiB or 512MiB",
        ),
        (
            lambda: FileConfig(rgba_background="white"),
            (
                "--rgba-background is 'white'; allowed: a colour as #ffffff, two hexadecimal digits each of "
                "red, green and blue"
            ),
        ),
        (
            lambda: FileConfig(media_cache="0.5"),
            "--media-cache is '0.5'; allowed: a size as 2GiB or 512MiB",
        ),
        (
            lambda: FileConfig(media_memory="64MiB"),
            (
                "--media-memory is '64MiB'; allowed: at least 879MiB, of which one file of --max-audio-s "
                "7200 takes half"
            ),
        ),
        (lambda: FileConfig(decode_workers=0), "--decode-workers is 0; allowed: 1 to 256"),
        (
            lambda: FileConfig(decode_timeout_s=float("nan")),
            "--decode-timeout-s is nan; allowed: at least 0.1",
        ),
        (
            lambda: RealtimeConfig(max_session_s=float("inf")),
            "--max-session-s is inf; allowed: at least 1, and finite",
        ),
        (
            lambda: FileConfig(max_upload_mib=float("inf")),
            "--max-upload-mib is inf; allowed: at least 0.001, and finite",
        ),
        (lambda: RealtimeConfig(max_sessions=0), "--max-sessions is 0; allowed: at least 1"),
        (lambda: RealtimeConfig(force_turn_s=1), "--force-turn-s is 1; allowed: at least 2"),
        (
            lambda: RealtimeConfig(release_delay="none"),  # type: ignore[arg-type]
            "--release-delay is 'none'; allowed: minimal, low, medium, high, xhigh",
        ),
        (lambda: ServerConfig(models=()), "no model named; allowed: at least one"),
        (
            lambda: ServerConfig(models=("a", "b"), served_model_names=("x",)),
            (
                "--served-model-name was given 1 time(s) for 2 model(s); "
                "allowed: once per model, in the same order"
            ),
        ),
        (
            lambda: ServerConfig(models=("/x/base", "/y/base")),
            "two models share the name 'base'; give --served-model-name",
        ),
        (
            lambda: ServerConfig(models=("a", "b"), alias=("x=c",)),
            "--alias is 'x=c'; allowed: ALIAS=NAME, of the names a, b",
        ),
        (
            lambda: ServerConfig(models=("a", "b"), alias=("x=a", "x=b")),
            "--alias is 'x=b'; allowed: a name that nothing else has",
        ),
        (
            lambda: ServerConfig(models=("a", "b"), alias=("a=b",)),
            "--alias is 'a=b'; allowed: a name that nothing else has",
        ),
    ],
)
def test_a_bad_value_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message


def test_models_have_public_names() -> None:
    models = ("openai/whisper-base", "/models/mine/", "./other", "~/home", "tiny-whisper")
    assert ServerConfig(models=models).public_names == (
        "openai/whisper-base",
        "mine",
        "other",
        "home",
        "tiny-whisper",
    )
    assert ServerConfig(models=("/a", "/b"), served_model_names=("x", "y")).public_names == ("x", "y")


def test_models_have_other_names() -> None:
    config = ServerConfig(models=("/a", "/b"), served_model_names=("x", "y"), alias=("one=x", " two = x"))
    assert config.aliases == {"one": "x", "two": "x"}


def test_the_largest_append_fits_into_a_message() -> None:
    config = RealtimeConfig(max_append_mib=3)
    assert config.max_append_bytes == 3 * 1024 * 1024
    assert config.max_message_bytes > config.max_append_bytes * 4 / 3 + 100


def test_memory_is_chosen_unless_it_is_given() -> None:
    assert EngineConfig().kv_size is None
    assert EngineConfig(kv_memory="2GiB").kv_size == MemorySize(2 * 1024**3, "bytes")
    assert EngineConfig(encoder_memory="0.2").encoder_size == MemorySize(0.2, "share")
