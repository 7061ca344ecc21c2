"""Other temperatures are tried where an answer is implausible, and the likeliest of several counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import trio
from sensorium.actors.speech.families.family import RangeRequest
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.media.transcript.range_answer import RangeAnswer
from sensorium.protocols.engine.messages import EncoderItem
from sensorium.protocols.shared.sampling import MAX_SEED
from sensorium.protocols.transcription.transcript import Transcript, TranscriptionOptions
from support.scripted_speech import ScriptedFamily, scripted_audio

LOOP = "one two " * 12
Said = tuple[str, float]
"""Text and mean log-probability."""


class Moody(ScriptedFamily):
    """Says what a temperature has for it; drawn answers are the later ones the sooner they come."""

    def __init__(self, by_temperature: dict[float, list[Said]]) -> None:
        super().__init__(("en", "unused"), language_from="model")
        self.by_temperature = by_temperature
        self.drawn: list[tuple[float, int | None]] = []

    async def answer(
        self,
        items: Sequence[EncoderItem],
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
    ) -> RangeAnswer:
        options = request.options
        number = len([each for each in self.drawn if each[0] == options.temperature])
        self.drawn.append((options.temperature, options.seed))
        text, logprob = self.by_temperature[options.temperature][number]
        await trio.sleep(1 / (1 + number))
        if on_text is not None:
            on_text(text)
        return RangeAnswer(text=text, logprobs=(logprob,) * 2, temperature=options.temperature)


async def transcribe(family: Moody, options: TranscriptionOptions) -> tuple[Transcript, list[str]]:
    deltas: list[str] = []
    transcript = await Transcriber(family).transcribe(scripted_audio(1), options, on_delta=deltas.append)
    return transcript, deltas


@pytest.mark.parametrize(
    ("said", "asked", "text"),
    [
        ({0.0: [("fine.", -0.3)]}, [0.0], "fine."),
        ({0.0: [(LOOP, -0.1)], 0.4: [("better.", -0.8)]}, [0.0, 0.4], "better."),
        ({0.0: [("so so.", -1.5)], 0.4: [("", 0.0)]}, [0.0, 0.4], ""),
        ({0.0: [(LOOP, -0.1)], 0.4: [("so so.", -1.5)], 0.8: [("no.", -2.0)]}, [0.0, 0.4, 0.8], "so so."),
        ({0.0: [(LOOP, -0.2)], 0.4: [(f"{LOOP}x", -0.1)], 0.8: [(LOOP, -0.3)]}, [0.0, 0.4, 0.8], f"{LOOP}x"),
    ],
)
async def test_temperatures_are_tried_until_an_answer_is_plausible(
    said: dict[float, list[Said]], asked: list[float], text: str, autojump_clock: object
) -> None:
    family = Moody(said)
    options = TranscriptionOptions(fallback_temperatures=(0.4, 0.8), segment_timestamps=True)
    transcript, deltas = await transcribe(family, options)
    assert [temperature for temperature, _ in family.drawn] == asked
    assert transcript.text == text.strip()
    assert "".join(deltas) == transcript.text, "nothing that was replaced is streamed"


async def test_the_likeliest_of_several_counts_whichever_comes_first(autojump_clock: object) -> None:
    family = Moody({0.5: [("poor.", -0.9), ("good.", -0.2), ("fair.", -0.5)]})
    options = TranscriptionOptions(temperature=0.5, best_of=3, seed=MAX_SEED - 1)
    transcript, deltas = await transcribe(family, options)
    assert (transcript.text, deltas) == ("good.", ["good."])
    assert set(family.drawn) == {(0.5, MAX_SEED - 1), (0.5, MAX_SEED), (0.5, 0)}


async def test_at_temperature_zero_there_is_but_one(autojump_clock: object) -> None:
    family = Moody({0.0: [(LOOP, -0.1)], 0.6: [("a.", -0.9), ("b.", -0.4)]})
    options = TranscriptionOptions(fallback_temperatures=(0.6,), best_of=2)
    transcript, _ = await transcribe(family, options)
    assert transcript.text == "b."
    assert len(family.drawn) == 3
