"""Families that hear and transcribe, with the tokens and contexts that this takes (`TRANSCRIBING`)."""

from __future__ import annotations

from dataclasses import replace

from support.media_families import windows
from support.media_families.clips import CLIP_FAMILIES
from support.media_family import Family

_BY_NAME = {family.model_type: family for family in (*windows.AUDIO_FAMILIES, *CLIP_FAMILIES)}
_MARKS = ("[INST]", "[/INST]", "[TRANSCRIBE]")


def _with(name: str, *tokens: str) -> Family:
    family = _BY_NAME[name]
    return replace(family, tokens=(*family.tokens, *tokens))


TRANSCRIBING = (_with("voxtral", *_MARKS), _with("glmasr"), _with("granite_speech"))
