"""A process that decodes opens no file but its own, reaches no address, and ends when its time is up."""

from __future__ import annotations

import json
import pickle
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sensorium.media.sandbox import should_retire
from support.audio_files import encoded, plain_wav, sound_file, tone, video
from support.vision_files import grey_steps, movie, picture, saved

pytestmark = pytest.mark.slow

_TRY = """
import encodings.idna, json, os, pickle, resource, socket, sys
from pathlib import Path
import av
from sensorium.media import sandbox, worker
from sensorium.media.audio.decode import DecodeLimits
how, folder, outside, address, given = sys.argv[1:]
sounds, pictures, clips = pickle.loads(Path(given).read_bytes())
os.chdir(folder)
for name in ("list", "mine"):
    Path(name).touch()
if how == "chroot":
    sandbox.leave_files = lambda folder: False
if how != "nothing":
    sandbox.confine(1 << 33, folder)
held = sandbox.protections() or (False, "none")
# As what a job calls is imported: with the job.
from sensorium.media.vision.images import read_image
from sensorium.media.vision.video_container import VideoLimits, open_video

def can(deed):
    try:
        deed()
    except (OSError, av.FFmpegError, ValueError):
        return False
    return True

def from_list(text, demuxer):
    Path("list").write_text(text)
    with av.open("list", format=demuxer, container_options={
        "safe": "0", "protocol_whitelist": "file,tcp,http,crypto", "allowed_extensions": "ALL",
        "allowed_segment_extensions": "ALL", "extension_picky": "0"
    }) as file:
        assert next(file.decode(audio=0)).samples

url = f"http://{address}/a.wav"
host, port = address.split(":")
reached = {
    "read": can(lambda: Path(outside).read_bytes()),
    "passwords": can(lambda: Path("/etc/passwd").read_bytes()),
    "write": can(lambda: Path(outside + ".new").write_bytes(b"x")),
    "list": can(lambda: list(Path(outside).parent.iterdir())),
    "libav": can(lambda: av.open(outside).close()),
    "concat": can(lambda: from_list(f"ffconcat version 1.0\\nfile '{outside}'\\n", "concat")),
    "playlist": can(lambda: from_list(f"#EXTM3U\\n#EXT-X-TARGETDURATION:5\\n#EXTINF:5,\\n{outside}\\n"
                                      "#EXT-X-ENDLIST\\n", "hls")),
}
network = {
    "connect": can(lambda: socket.create_connection((host, int(port)), timeout=5).close()),
    "libav": can(lambda: av.open(url, timeout=1).close()),
}
Path("mine").write_bytes(b"own")
decoded = [type(worker.decode_job(data, DecodeLimits())).__name__ for data in sounds]
decoded += [type(read_image(data, None, (255, 255, 255))).__name__ for data in pictures]
for data in clips:
    with open_video(data, VideoLimits()) as (file, stream):
        decoded.append(type(next(file.decode(stream))).__name__)
limits = [resource.getrlimit(each)[0] for each in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)]
mine, peak = Path("mine").read_text(), sandbox.peak_bytes()
print(json.dumps([held, reached, network, decoded, limits, mine, peak]))
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Files of every kind, to be opened inside."""
    sounds = [
        plain_wav(tone(0.2)),
        sound_file(tone(0.2), kind="FLAC"),
        encoded(tone(0.2), container="mp3", codec="libmp3lame"),
        encoded(tone(0.2), container="mp4", codec="aac"),
        encoded(tone(0.2), container="webm", codec="libopus", rate=48_000),
        sound_file(tone(0.2), kind="OGG", subtype="VORBIS"),
    ]
    kinds = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "TGA")
    pictures = [saved(Image.fromarray(picture(40, 30)), kind) for kind in kinds]
    given = tmp_path / "given"
    given.write_bytes(pickle.dumps((sounds, pictures, [movie(grey_steps(4)), video(None)])))
    return given


@pytest.mark.parametrize("how", ["nothing", "landlock", "chroot"])
def test_a_decoder_opens_its_own_files_and_no_others(how: str, files: Path, tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "secret.aac"
    folder.mkdir()
    outside.write_bytes(encoded(tone(0.2), container="adts", codec="aac"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-c", _TRY, how, str(folder), str(outside), address, str(files)]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    result: list[Any] = json.loads(done.stdout)
    (has_no_network, guard), reached, network, decoded, (core_bytes, file_bytes), mine, peak = result
    expected = dict.fromkeys(reached, guard == "none")
    assert reached == expected, "what is said to hold is what holds"
    assert any(network.values()) != has_no_network
    assert decoded == ["DecodedAudio"] * 6 + ["ndarray"] * 9 + ["VideoFrame"] * 2
    assert mine == "own"
    assert (core_bytes == 0 < file_bytes <= 1 << 33) != (how == "nothing")
    assert (20 << 20) < peak < (1 << 30), "its own status can still be read"


_WITHOUT_ROOT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)  # PR_CAPBSET_DROP of CAP_SYS_ADMIN: root becomes anybody
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
_MAY_LEAVE = "import ctypes; print(ctypes.CDLL(None).unshare(0x50000000) == 0)"
_IN_A_WORKER = """
import sys, trio
from sensorium.actors.media_decoding.workers import open_workers
from sensorium.media.sandbox import protections

async def main():
    async with open_workers(sys.argv[1], idle_s=60, max_bytes=1 << 33) as context:
        print((await context.run_sync(protections)).has_no_network)

if __name__ == "__main__":
    trio.run(main)
"""


def test_a_worker_of_any_user_leaves_the_network_where_one_thread_may(tmp_path: Path) -> None:
    """NumPy starts threads when it is loaded, and of several none may."""
    expected = []
    for script in (_MAY_LEAVE, _IN_A_WORKER):
        command = [sys.executable, "-c", _WITHOUT_ROOT, script, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        assert done.returncode == 0, done.stderr
        expected.append(done.stdout)
    assert expected[0] == expected[1]


def test_a_worker_that_has_grown_retires() -> None:
    assert should_retire(1 << 20)
    assert not should_retire(1 << 50)


_SPIN = """
from sensorium.media.sandbox import within
within(0.2, lambda: print("in time", flush=True))
def spin():
    while True:
        pass
within(0.2, spin)
"""


def test_a_job_that_spins_ends() -> None:
    done = subprocess.run([sys.executable, "-c", _SPIN], capture_output=True, check=False, timeout=60)
    assert done.stdout == b"in time\n"
    assert done.returncode == -signal.SIGXCPU
