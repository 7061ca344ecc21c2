"""The microphone as an iterable of PCM16 chunks, through `sounddevice` where it is installed.

Read next: `client/cli/commands.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from ..audio import CHUNK_MS
from ..errors import AudioError

RATE = 24_000


def microphone() -> Iterator[bytes]:
    """Chunks of mono PCM16 at 24 kHz as they are spoken, without end.

    Raises AudioError, before the first chunk, if there is no sounddevice or no input device.
    """
    try:
        sounddevice = importlib.import_module("sounddevice")
    except (ImportError, OSError) as error:  # OSError: the PortAudio library is missing
        raise AudioError(
            f"the microphone needs the package sounddevice ({error}); install it with "
            "`pip install sounddevice` (the extra [mic]), or name a WAV file: sensorium listen FILE"
        ) from None
    try:
        stream = sounddevice.RawInputStream(samplerate=RATE, channels=1, dtype="int16")
        stream.start()
    except Exception as error:  # PortAudioError, which only exists with the module
        raise AudioError(f"no microphone: {error}; name a WAV file: sensorium listen FILE") from None
    return _chunks(stream)


def _chunks(stream: object) -> Iterator[bytes]:
    read = stream.read  # type: ignore[attr-defined]
    while True:
        data, _ = read(RATE * CHUNK_MS // 1000)
        yield bytes(data)
