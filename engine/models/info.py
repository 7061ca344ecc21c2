"""What others may know of a checkpoint, whatever its family, and the JSON files that say it.

Torch-free. A family that has more to say keeps a `ModelInfo` of its own in its folder; nobody outside asks
which one it is: what the rest of the engine must know are facts here, or abilities of `ModelSource`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from ...protocols.errors import ModelLoadError
from ...protocols.shared.json_file import read_json
from ...protocols.shared.sampling import (
    NO_SAMPLING_DEFAULTS,
    SamplingDefaults,
    allowed_range,
    is_outside,
    ranges_of,
)
from .embedding import Embedding

_DEPTHS: Final = frozenset(
    {"num_hidden_layers", "encoder_layers", "decoder_layers", "depth", "n_layer", "n_layers", "num_layers"}
)
_MAX_LAYERS: Final = 1000
_MAX_SHOWN: Final = 100
"""Characters of a value that makes no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What others may know of a loaded model."""

    name: str
    folder: Path
    family: str
    """For people to read; code asks for what it needs to know."""
    purpose: str = ""
    """What it is good for, for people to read, too; empty: its family tells."""
    library: str = ""
    """Whose code runs it; empty: the engine has its own."""
    vocab_size: int
    """Rows of the logits; may exceed the tokenizer's ids."""
    max_context: int
    """Prompt plus answer are at most this many tokens."""
    stop_token_ids: tuple[int, ...] = ()
    """What ends an answer unless the request says otherwise (`eos_token_id` of the generation config, and the
    tokenizer's `eos_token`)."""
    kv_dtype: str = ""
    """What keys and values are kept as, for people to read."""
    sampling: SamplingDefaults = NO_SAMPLING_DEFAULTS
    """How text is sampled where a request does not say."""
    sees_whole_prompts: bool = False
    """Tokens of a prompt attend to all of it, and so are fed in one step."""
    replayable: bool = False
    """Decode steps are device work alone, without a decision of the host on what it computed."""
    is_adaptable: bool = False
    """Opened so that adapters may change its products (`Opening.adaptable`), which its family can."""
    embedding: Embedding | None = None
    """How it makes vectors of texts; None if it does not."""
    is_bidirectional: bool = False
    """Tokens attend to what follows them, too: it embeds texts and generates none."""
    attended_shape: tuple[int, int] | None = None
    """Shape of the features of the one item that every row attends to, at most; None: encodings lie in
    prompts."""
    attended_tokens: int = 0
    """Rows of its encoding, of features of that shape; shorter ones have fewer."""
    input_frames_per_row: int = 0
    """Frames of the chunks that a request is fed, to one row of their encoding; 0 if requests are not fed."""
    state_bytes: int = 0
    """Of the states of one fed request, as long as it lasts; 0 if requests are not fed."""
    whole_input_rows: int = 0
    """Rows of the longest input, where a fed request has a single chunk; 0: it has any number of
    them."""
    extractors: ClassVar[Mapping[str, int]] = {}
    """Of a family that listens: the feature extractors that its checkpoints may name (the first where one
    names none), and how many mel bins each assumes."""

    @property
    def frames_per_row(self) -> float:
        """Frames of features to one row of an encoding that is attended to; 0 if none is."""
        if self.attended_shape is None or not self.attended_tokens:
            return 0.0
        return self.attended_shape[1] / self.attended_tokens

    @property
    def runs(self) -> str:
        """native: the engine has code of its own for the family; else the library whose code runs."""
        return self.library or "native"

    @property
    def runs_through(self) -> str:
        """The same for people."""
        return self.library or f"the engine's own code of {self.family}"

    def describe(self) -> str:
        """What it can do, for people."""
        return f"{self.purpose or self.family} · {self.max_context} tokens of context"


class ModelText(Protocol):
    """What is asked of the text side of any model."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ids, control tokens left out, broken UTF-8 as U+FFFD."""

    @property
    def byte_table(self) -> Sequence[bytes] | None:
        """Bytes of each id, where text is made by joining them."""

    @property
    def grammar_json(self) -> str | None:
        """The tokenizer as `tokenizers` writes it, for grammars; None if answers are no free text."""


@dataclass(frozen=True, slots=True)
class SpeechEntry:
    """How a model is served that transcribes."""

    file: str
    """The module whose `open_family(engine, info, text)` gives the speech side: a name in
    `sensorium.actors.speech` (".whisper") or an absolute one."""
    text: Any
    """The family's own text side, which that module knows."""


def check_numbers(config: dict[str, Any], path: Path) -> None:
    """Refuse what would take all memory, or be computed with and mean nothing, before a family reads it.

    Numbers of layers for which merely naming all of them is too much, and bases of rotary embeddings that are
    not positive. Raises ModelLoadError naming the field.
    """
    parts = [config]
    while parts:
        for name, value in parts.pop().items():
            if isinstance(value, dict):
                parts.append(value)
            elif name in _DEPTHS and isinstance(value, int) and value > _MAX_LAYERS:
                raise ModelLoadError(f"{path}: {name} is {value}; allowed: up to {_MAX_LAYERS}")
            elif name == "rope_theta" and isinstance(value, int | float) and not 0 < value < math.inf:
                raise ModelLoadError(f"{path}: rope_theta is {value}; allowed: above 0, and finite")


def generation_config(folder: Path) -> dict[str, Any]:
    """`generation_config.json`; checkpoints without one keep its fields in `config.json`."""
    return read_json(_generation_path(folder))


def _generation_path(folder: Path) -> Path:
    path = folder / "generation_config.json"
    return path if path.is_file() else folder / "config.json"


def token_ids(config: Mapping[str, Any], field: str, folder: Path) -> tuple[int, ...]:
    """What a field of the folder's generation config names: one id or a list; none where it is not there.

    Raises ModelLoadError naming the file and the field.
    """
    value = config.get(field)
    listed = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(each) is int for each in listed):
        raise misfit(folder, field, value, "a token id or a list of them")
    return tuple(listed)


def misfit(folder: Path, field: str, value: object, wanted: str) -> ModelLoadError:
    """What to raise for a field of a folder's generation config that is not what is wanted of it."""
    shown = repr(value)[:_MAX_SHOWN]
    return ModelLoadError(f"{_generation_path(folder)}: {field} is {shown}, not {wanted}")


def sampling_defaults(folder: Path, *, is_greedy: bool = False) -> SamplingDefaults:
    """How `generation_config.json` samples; `do_sample` false is greedy, and so is a file without it where
    `is_greedy`. Raises ModelLoadError."""
    path = folder / "generation_config.json"
    config = read_json(path) if path.is_file() else {}
    ranges = ranges_of(SamplingDefaults)
    found = {name: config[name] for name in ranges if config.get(name) is not None}
    for name, value in found.items():
        if type(value) not in (int, float) or is_outside(value, ranges[name]):
            raise ModelLoadError(
                f"{path}: {name} is {value!r}; allowed: a number, {allowed_range(ranges[name])}; "
                "--generation-config none leaves the file's sampling out"
            )
    samples = config.get("do_sample")
    if samples is False or (samples is None and is_greedy):
        return SamplingDefaults(temperature=0.0, repetition_penalty=found.get("repetition_penalty"))
    if samples and "temperature" not in found:
        found["temperature"] = 1.0
    return SamplingDefaults(**found)
