"""How likely each 32 ms of audio is speech: the silero network on onnxruntime, many streams at once.

It scores; deciding when a turn starts and ends is `realtime/turns/detector.py`. The weights come from the
`silero_vad` package's folder, which is found but not imported: importing it loads torch and sets torch's
number of threads for the whole process.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...protocols.errors import ModelLoadError
from ...protocols.shared.audio_format import INTERNAL_RATE
from ..audio.gain import LevelControl

FloatArray = npt.NDArray[np.float32]

FRAME_SAMPLES: Final = 512
"""Samples per score at 16 kHz; the network knows no other length."""
CONTEXT_SAMPLES: Final = 64
"""Samples of the previous frame that the network sees again."""
_STATE_SHAPE: Final = (2, 1, 128)
_RATE: Final = np.array(INTERNAL_RATE, dtype=np.int64)


def _weights() -> Path:
    package = importlib.util.find_spec("silero_vad")
    for folder in (package.submodule_search_locations or []) if package else []:
        path = Path(folder) / "data" / "silero_vad.onnx"
        if path.is_file():
            return path
    raise ModelLoadError("voice activity: data/silero_vad.onnx was not found; is silero-vad installed?")


class VoiceActivityModel:
    """One network for all streams: holds no state of a stream, runs on one thread."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` defaults to the installed weights. Raises ModelLoadError if they cannot be loaded."""
        # Read when it is imported: else it keeps a database of its use in the user's cache, and sends that
        # away.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime  # here: processes that run models cut speech, and score none

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3  # errors only; the exported graph warns about unused initializers
        path = path or _weights()
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's exceptions share no base below Exception
            raise ModelLoadError(f"voice activity: {path} could not be loaded: {error}") from error

    def score(self, frames: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Speech probabilities of frames with their context, one of each of n streams: [n, 576] → [n].

        `states` and what they become, [2, n, 128], are the streams' own: a row of the result does not depend
        on the others. Holds no lock while it computes.
        """
        inputs = {"input": frames, "state": states, "sr": _RATE}
        probabilities, states = self._session.run(None, inputs)
        return probabilities[:, 0], states


class FrameCutter:
    """Cuts one stream at 16 kHz into frames as the network hears them, however the stream comes: faint ones
    are amplified (`media/audio/gain.py`)."""

    def __init__(self) -> None:
        self.num_samples = 0
        """Samples of all frames that were cut; frames stay on this grid, also over a reset."""
        self._pending = np.zeros(0, np.float32)
        self.reset()

    def reset(self) -> None:
        """The next frame does not continue the last one."""
        self._context = np.zeros(CONTEXT_SAMPLES, np.float32)
        self._level = LevelControl()

    def push(self, samples: FloatArray) -> list[FloatArray]:
        """The frames completed by `samples` [n], each behind the end of the one before, [576]."""
        fresh = np.concatenate((self._pending, samples))
        end = len(fresh) // FRAME_SAMPLES * FRAME_SAMPLES
        self._pending = fresh[end:].copy()
        if not end:
            return []
        levelled = self._level.apply(fresh[:end].reshape(-1, FRAME_SAMPLES))
        padded = np.concatenate((self._context, levelled.ravel()))
        self._context = padded[end:].copy()
        self.num_samples += end
        return [padded[at : at + CONTEXT_SAMPLES + FRAME_SAMPLES] for at in range(0, end, FRAME_SAMPLES)]


class VoiceActivityStream:
    """Scores one stream at 16 kHz; the scores do not depend on how the stream is cut into chunks."""

    def __init__(self, model: VoiceActivityModel) -> None:
        self._model = model
        self._cutter = FrameCutter()
        self._state = new_state()

    def reset(self) -> None:
        """Forget what was heard. Positions go on counting, and frames stay on the same grid."""
        self._state = new_state()
        self._cutter.reset()

    def push(self, samples: FloatArray) -> list[tuple[int, float]]:
        """`(end_sample, probability)` of every frame completed by `samples` [n], in order.

        `end_sample` counts from the stream's first sample. Costs about 0.1 ms per frame.
        """
        first = self._cutter.num_samples
        probabilities = []
        for frame in self._cutter.push(np.asarray(samples, dtype=np.float32)):
            probability, self._state = self._model.score(frame[None], self._state)
            probabilities.append(float(probability[0]))
        return positioned(first, probabilities)


def new_state() -> FloatArray:
    """The state of a stream in which nothing was heard, [2, 1, 128]."""
    return np.zeros(_STATE_SHAPE, np.float32)


def positioned(first: int, probabilities: Iterable[float]) -> list[tuple[int, float]]:
    """`(end_sample, probability)` of frames that follow each other from sample `first`."""
    return [(first + FRAME_SAMPLES * index, score) for index, score in enumerate(probabilities, 1)]
