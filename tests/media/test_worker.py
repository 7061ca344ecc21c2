"""A decode process answers with plain values and keeps to its bounds."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sensorium.media.audio.decode import DecodedAudio, DecodeLimits
from sensorium.media.vision.config import VideoConfig
from sensorium.media.vision.images import prepare_image
from sensorium.media.vision.video import prepare_video
from sensorium.media.worker import (
    decode_job,
    decode_to_file,
    vision_to_file,
    with_features,
)
from sensorium.protocols.engine.messages import MediaItems
from sensorium.protocols.errors import MediaError, SensoriumError, TooLargeError
from support.audio_files import plain_wav, tone
from support.vision_files import grey_steps, movie, pixel_config, png


def test_a_result_survives_the_way_between_processes() -> None:
    result = pickle.loads(pickle.dumps(decode_job(plain_wav(tone(0.5)), DecodeLimits())))
    assert isinstance(result, DecodedAudio)
    np.testing.assert_allclose(result.samples, tone(0.5), atol=1e-4)


@pytest.mark.parametrize(
    ("data", "limits", "kind"),
    [(b"", DecodeLimits(), MediaError), (plain_wav(tone(2.0)), DecodeLimits(max_seconds=1), TooLargeError)],
)
def test_an_error_is_a_value_and_survives_too(
    data: bytes, limits: DecodeLimits, kind: type[SensoriumError]
) -> None:
    error = decode_job(data, limits)
    assert isinstance(error, SensoriumError)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.message, copy.code, copy.param) == (error.message, error.code, "file")
    assert error.__context__ is None


def test_samples_go_to_a_file_and_the_message_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    result = decode_to_file(plain_wav(tone(5.0)), DecodeLimits(), str(path))
    assert isinstance(result, DecodedAudio)
    assert len(pickle.dumps(result)) < 1000
    np.testing.assert_allclose(np.fromfile(path, np.float32), tone(5.0), atol=1e-4)
    assert isinstance(decode_to_file(b"", DecodeLimits(), str(path)), MediaError)


PIXELS = pixel_config(1024, 8192, patch_size=8)
VIDEO = VideoConfig(pixels=PIXELS)
AS_IMAGE = partial(prepare_image, config=PIXELS)
AS_VIDEO = partial(prepare_video, config=VIDEO)


def test_an_image_goes_through_a_file(tmp_path: Path) -> None:
    path = tmp_path / "features"
    image = vision_to_file(png(40, 30), AS_IMAGE, "image", str(path))
    assert isinstance(image, MediaItems)
    assert len(pickle.dumps(image)) < 1000
    assert with_features(image, str(path)) == prepare_image(png(40, 30), PIXELS)


def test_a_video_goes_through_a_file(tmp_path: Path) -> None:
    path, data = tmp_path / "features", movie(grey_steps(20))
    video = vision_to_file(data, AS_VIDEO, "video", str(path))
    assert isinstance(video, MediaItems)
    assert len(pickle.dumps(video)) < 2000
    expected = prepare_video(data, VIDEO)
    assert len(expected.items) > 1
    assert with_features(video, str(path)) == expected


def test_pictures_that_are_none_are_errors_as_values(tmp_path: Path) -> None:
    path = str(tmp_path / "features")
    for error, param in (
        (vision_to_file(b"", AS_IMAGE, "image", path), "image"),
        (vision_to_file(b"", AS_VIDEO, "video", path), "video"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert isinstance(copy, MediaError)
        assert copy.param == param


_CHILD = "from sensorium.media.sandbox import peak_bytes; print(peak_bytes())"


def test_what_the_parent_needed_is_not_counted() -> None:
    ballast = bytearray(b"\x01") * (300 << 20)  # resident when the child is forked
    done = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, check=True)
    assert (20 << 20) < int(done.stdout) < len(ballast)


_TOO_BIG = """
import sys
from sensorium.media.audio.decode import DecodeLimits
from sensorium.media.sandbox import confine
from sensorium.media.worker import decode_job
heavy = {"torch", "trio", "transformers", "onnxruntime", "starlette"} & sys.modules.keys()
assert not heavy, heavy
data = sys.stdin.buffer.read()
confine(400 * 1024**2, sys.argv[1])
print(decode_job(data, DecodeLimits(max_bytes=1 << 40, max_seconds=1e6)))
"""


@pytest.mark.slow
def test_memory_is_bounded_and_imports_are_light(tmp_path: Path) -> None:
    data = plain_wav(np.zeros(16_000 * 2400, np.float32))  # 73 MiB, 146 MiB decoded
    command = [sys.executable, "-c", _TOO_BIG, str(tmp_path)]
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, input=data * 4, capture_output=True, check=True, env=environment)
    assert b"too much memory" in done.stdout


_REFUSED = """
import resource, sys
from sensorium.media.audio.decode import DecodeLimits
from sensorium.media.sandbox import confine
from sensorium.media.worker import decode_job
data = sys.stdin.buffer.read()
confine(4 << 30, sys.argv[1])
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (640 << 20, most))
print(repr(decode_job(data, DecodeLimits(max_bytes=1 << 40, max_seconds=1e6))))
"""


@pytest.mark.slow
def test_memory_that_the_system_refuses_is_not_the_files_fault(tmp_path: Path) -> None:
    data = plain_wav(np.zeros(16_000 * 2400, np.float32))
    command = [sys.executable, "-c", _REFUSED, str(tmp_path)]
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, input=data * 4, capture_output=True, check=True, env=environment)
    assert b"OverloadedError" in done.stdout
