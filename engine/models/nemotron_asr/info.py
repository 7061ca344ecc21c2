"""What others may know of a Nemotron ASR checkpoint: its delays, and the languages that it takes.

Torch-free. A look-ahead is the number of encoder frames (rows of 80 ms) that a row may see behind itself; the
model has learned a few of them, and a session chooses. `chunks.py` says what it means for chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from ....protocols.errors import ModelLoadError
from ....protocols.shared.json_file import read_json
from ..info import ModelInfo
from .chunks import FRAMES_PER_ROW, chunk_rows

ROW_MS: Final = 10 * FRAMES_PER_ROW
_LOOKAHEADS: Final = (13, 6, 1, 0)
"""Of every published checkpoint, where its processor's config names none."""
_MOST_LOOKAHEAD: Final = 1000
_AUTO: Final = "auto"
# fmt: off
_LOCALES: Final = (
    "en-US", "en-GB", "es-ES", "es-US", "zh-CN", "zh-TW", "hi-IN", "ar-AR", "fr-FR", "de-DE", "ja-JP",
    "ru-RU", "pt-BR", "pt-PT", "ko-KR", "it-IT", "nl-NL", "pl-PL", "tr-TR", "uk-UA", "ro-RO", "el-GR",
    "cs-CZ", "hu-HU", "sv-SE", "da-DK", "fi-FI", "no-NO", "sk-SK", "hr-HR", "bg-BG", "lt-LT", "th-TH",
    "vi-VN", "id-ID", "ms-MY", "bn-IN", "ur-PK", "fa-IR", "ta-IN", "te-IN", "mr-IN", "gu-IN", "kn-IN",
    "ml-IN", "si-LK", "ne-NP", "km-KH", "sw-KE", "am-ET", "ha-NG", "zu-ZA", "yo-NG", "ig-NG", "af-ZA",
    "rw-RW", "so-SO", "ny-MW", "ln-CD", "or-KE", "et-EE", "lv-LV", "sl-SI",
)
# fmt: on
"""The first slots of the language prompt, in order, where the processor's config has no table."""
_LATER_LOCALES: Final = {
    "he-IL": 64,
    "ku-TR": 65,
    "az-AZ": 66,
    "ka-GE": 67,
    "hy-AM": 68,
    "uz-UZ": 69,
    "tg-TJ": 70,
    "ky-KG": 71,
    "qu-PE": 80,
    "ay-BO": 81,
    "gn-PY": 82,
    "nah-MX": 83,
    "mi-NZ": 96,
    "haw-US": 97,
    "sm-WS": 98,
    "to-TO": 99,
    "fr-CA": 100,
    _AUTO: 101,
    "mt-MT": 102,
    "nb-NO": 103,
    "nn-NO": 104,
}
_BARE_CODES: Final = {"es": "es-US", "pt": "pt-PT"}
"""Languages whose code alone is not their first locale."""
# fmt: off
_NAMED_BY_CODE: Final = (
    "en", "es", "hi", "ar", "fr", "de", "ja", "ru", "pt", "ko", "it", "nl", "pl", "tr", "uk", "ro", "el",
    "cs", "hu", "sv", "da", "fi", "no", "nb", "nn", "sk", "hr", "bg", "lt", "et", "lv", "sl",
)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class NemotronAsrInfo(ModelInfo):
    """What others may know of a loaded model; its folder holds the feature extractor's config."""

    num_mel_bins: int
    lookaheads: tuple[int, ...]
    """That the model has learned, the default first."""
    conditions: dict[str, int]
    """The languages that it takes (`de`, `de-DE`, `auto`) and the `Transduce.condition` of each; empty
    for a model of one language."""
    default_condition: int
    """Of requests that name no language: the model recognises it, where there is more than one."""
    extractors: ClassVar = {"NemotronAsrStreamingFeatureExtractor": 80}

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes and locales that it takes."""
        return tuple(name for name in self.conditions if name != _AUTO)

    @property
    def delays_ms(self) -> dict[int, int]:
        """Milliseconds of audio that a chunk of each look-ahead has."""
        return {lookahead: ROW_MS * chunk_rows(lookahead) for lookahead in self.lookaheads}

    def describe(self) -> str:
        """What it can do, for people."""
        delays = ", ".join(str(delay) for delay in sorted(self.delays_ms.values()))
        num = len({self.conditions[name] for name in self.languages})
        languages = f"{num} locales" if num else "one language"
        return f"transcribe as it is spoken · {languages} · {delays} ms of delay"


def read_lookaheads(folder: Path) -> tuple[int, ...]:
    """Those that the processor's config names, its default first. Raises ModelLoadError."""
    path, values = _processor(folder)
    named = values.get("supported_num_lookahead_tokens")
    named = list(_LOOKAHEADS) if named is None else named
    default = values.get("default_num_lookahead_tokens")
    is_listed = isinstance(named, list) and bool(named)
    if not is_listed or not all(type(each) is int and 0 <= each <= _MOST_LOOKAHEAD for each in named):
        raise ModelLoadError(
            f"{path}: supported_num_lookahead_tokens is {named!r}; allowed: a list of whole numbers from 0 "
            f"to {_MOST_LOOKAHEAD}"
        )
    default = named[0] if default is None else default
    if default not in named:
        raise ModelLoadError(
            f"{path}: default_num_lookahead_tokens is {default!r}; allowed: {', '.join(map(str, named))}"
        )
    return (default, *(each for each in dict.fromkeys(named) if each != default))


def read_conditions(folder: Path, num_prompts: int) -> dict[str, int]:
    """Languages and their slots of the prompt. Raises ModelLoadError."""
    path, values = _processor(folder)
    table = values.get("prompt_dictionary")
    if table is None:
        return {name: slot for name, slot in _published_conditions().items() if slot < num_prompts}
    is_table = isinstance(table, dict) and all(type(slot) is int for slot in table.values())
    if not is_table or not all(0 <= slot < num_prompts for slot in table.values()):
        raise ModelLoadError(
            f"{path}: prompt_dictionary must give each language a slot from 0 to {num_prompts - 1}"
        )
    return dict(table)


def _published_conditions() -> dict[str, int]:
    slots = {name: slot for slot, name in enumerate(_LOCALES)} | _LATER_LOCALES
    for code in _NAMED_BY_CODE:
        locale = _BARE_CODES.get(code) or next(name for name in slots if name.startswith(f"{code}-"))
        slots[code] = slots[locale]
    return slots


def _processor(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    path = folder / "processor_config.json"
    return path, read_json(path) if path.is_file() else {}
