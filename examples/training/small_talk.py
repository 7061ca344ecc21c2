"""A little chat: greetings, thanks, what the model can do, and what it cannot see or does not know.

`talk` draws what is said without a picture, `beyond` what is asked of a picture or clip that no picture of
ours can answer. Knows no scenes. Read `question_forms.py` first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, Literal, get_args

from question_forms import SceneQuestion

TalkKind = Literal["greeting", "abilities", "thanks", "bye", "no picture", "elsewhere"]
TALK_KINDS: Final[tuple[TalkKind, ...]] = get_args(TalkKind)


def _forms(text: str) -> Sequence[str]:
    return text.split(" | ")


_CAN: Final = "I can tell you about simple shapes, colors, numbers and words in pictures and short clips."
_CANNOT: Final = "I do not know. I only know simple shapes, colors, numbers and words."
_BLIND: Final = "I can't see a picture. Please send me one."

_TALK: Final[dict[TalkKind, tuple[Sequence[str], str]]] = {
    "greeting": (
        _forms(
            "Hello | Hello! | Hi | Hi! | Hi there | Hey | Good morning | Good evening! | Hello there! | "
            "Hello, how are you? | Hi, how are you? | How are you?"
        ),
        "Hello! Show me a picture or a short clip and ask me about it.",
    ),
    "abilities": (
        _forms(
            "What can you do? | Who are you? | What are you? | Help | How does this work? | "
            "What is this? | What can I ask you? | What do you know? | Can you help me? | "
            "Which questions can you answer?"
        ),
        _CAN,
    ),
    "thanks": (
        _forms("Thanks | Thank you! | Thank you very much. | Great, thanks! | Thanks a lot! | Well done!"),
        "You are welcome!",
    ),
    "bye": (
        _forms("Bye | Goodbye! | See you! | Good night! | Bye bye | See you later!"),
        "Goodbye!",
    ),
    "no picture": (
        _forms(
            "What do you see? | What is in the picture? | Describe the picture. | "
            "What happens in the clip? | What color is the circle? | How many things are there? | "
            "Read the text. | What moves? | Where is the star? | What does it say? | "
            "List all things as JSON. | What happens? | Is there a red circle? | What is in the center? | "
            "Which number is this? | What appears?"
        ),
        _BLIND,
    ),
    "elsewhere": (
        _forms(
            "What is the capital of France? | Tell me a joke. | What time is it? | "
            "How is the weather today? | Write a poem. | What is two plus two? | Who won the match? | "
            "Translate this. | Sing a song. | What is the meaning of life? | Can you drive a car? | "
            "How old are you? | Tell me a story."
        ),
        _CANNOT,
    ),
}
_BEYOND: Final = _forms(
    "Who is this? | Who is in the picture? | Where was this taken? | What is the person doing? | "
    "How old is she? | What time is it? | What is the weather like? | Which animal is this? | "
    "Who painted this? | What does it smell like? | How much does it cost? | What is he saying?"
)


def talk(kind: TalkKind, rng: random.Random) -> SceneQuestion:
    """What is said without a picture, and the answer to it."""
    forms, answer = _TALK[kind]
    return SceneQuestion(kind, rng.choice(forms), answer)


def beyond(rng: random.Random) -> SceneQuestion:
    """A question about a picture or clip that it cannot answer."""
    return SceneQuestion("beyond", rng.choice(_BEYOND), _CANNOT)
