"""Files that are damaged, lie or mean harm: a result or a client's error naming the kind, no more."""

from __future__ import annotations

import warnings

from sensorium.media.audio.decode import DecodeLimits, decode_audio
from sensorium.media.vision.config import VideoConfig
from sensorium.media.vision.images import prepare_image
from sensorium.media.vision.video import prepare_video
from sensorium.protocols.errors import ClientError
from support.hostile_files import Hostile, damaged_files, good_files, lying_files
from support.vision_files import pixel_config

PIXELS = pixel_config(4096, 48 * 64 * 60, patch_size=4)
CLIP = VideoConfig(pixels=PIXELS)
LIMITS = DecodeLimits(max_seconds=60.0)
PARAMS = {"image": "image", "video": "video", "audio": "file"}


def outcome(file: Hostile) -> ClientError | None:
    """What is said of a file that is not opened; PyAV and Pillow may warn of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            match file.kind:
                case "image":
                    prepare_image(file.data, PIXELS)
                case "video":
                    prepare_video(file.data, CLIP)
                case "audio":
                    decode_audio(file.data, limits=LIMITS)
        except ClientError as error:
            return error
    return None


def test_the_good_ones_are_opened() -> None:
    for name, (kind, data) in good_files().items():
        assert outcome(Hostile(name, kind, data)) is None, name


def test_damage_is_a_clients_error_or_none() -> None:
    outcomes = {file.name: (file.kind, outcome(file)) for file in damaged_files(108, seed=1)}
    errors = {name: (kind, error) for name, (kind, error) in outcomes.items() if error is not None}
    assert 20 < len(errors) < 88
    for name, (kind, error) in errors.items():
        assert error.param == PARAMS[kind], name


def test_lies_and_bombs_are_refused() -> None:
    opened = []
    for file in lying_files():
        error = outcome(file)
        if error is None:
            opened.append(file.name)
        else:
            assert error.param == PARAMS[file.kind], file.name
    assert set(opened) <= {"png bomb", "gif frames", "endless ogg"}, "within limits, and no lie"
