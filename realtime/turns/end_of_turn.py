"""Whether what was said so far sounds finished: how `semantic_vad` knows how long to wait. Pure text.

It goes by what a transcript shows: the last mark and the last word. A model puts a full stop behind every
pause it takes for the end of a sentence, and leaves it out where the voice stayed up. Alone a full stop is no
evidence: behind a word that leads on it counts for nothing.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

Ending = Literal["finished", "open", "unknown"]

_FINAL_MARKS: Final = frozenset(".?!。？！｡।॥؟۔።᙮။។")
_OPEN_MARKS: Final = frozenset(",;:-–—…、，；：،؛¿¡")
_FULL_STOPS: Final = frozenset(".。．")
_CLOSING: Final = "\"'»”’)]}」』）"
_UNMARKED: Final = re.compile(r"[\u0e00-\u0eff]$")
"""Thai and Lao are written without marks between sentences."""
_WORD: Final = re.compile(r"([^\W\d_]+)\W*$")
_LEADING_WORDS: Final = {
    "en": """a an and as because but er if my or our than the their uh um unless until whether your""",
    "de": """aber als äh ähm bis dass dem den der des eine einem einen einer mein meine ob oder sondern
        und weil wenn zum""",
    "es": """aunque con cuando de del e el en la las los mi o para pero por porque que si sin su tu u un
        una y""",
    "pt": """a as com da de do e em mas na no o os ou para por porque que se sem um uma""",
    "fr": """au aux avec car de des du et euh la le les ma mais mon ou parce pour quand que sans un une""",
    "it": """che con di e gli il la le ma o per perché però un una uno""",
}
"""Words that something follows, by language (`an` begins an English noun, and ends many a German sentence):
conjunctions, articles, possessives, prepositions, and sounds of thinking."""
_LEADING: Final = {language: frozenset(words.split()) for language, words in _LEADING_WORDS.items()}
_MOSTLY_LEADING_WORDS: Final = {
    "en": """am are at be been being by can could did do does for from had has have he i is may might must of
        shall she should they to was we were will with would you""",
    "de": """bin bist du er haben hast hat hatte hatten ich ist kann kannst können muss müssen sind soll
        sollen waren werde werden wir wird wirst wollen würde""",
    "es": """era eran es está estoy están ha han has he hemos puede pueden quiero son soy tengo tiene""",
    "pt": """era eram estou está estão pode podem quero são sou tem tenho têm é""",
    "fr": """ai as avez avons est il je nous ont peut peuvent sont suis tu veux vous étaient était""",
    "it": """abbiamo era erano ha hai hanno ho possono può sono sta stanno voglio è""",
}
"""Words that mostly lead on, and may end a sentence ("Yes, I have."): a model puts a full stop behind every
piece of speech ("You have."), which is no evidence of an end behind these."""
_MOSTLY_LEADING: Final = {
    language: frozenset(words.split()) for language, words in _MOSTLY_LEADING_WORDS.items()
}
_LOOK_BACK: Final = 64
"""Characters that are looked at, whatever the length of the turn."""


def ending(text: str, language: str = "") -> Ending:
    """How `text` ends: as a sentence does, in the middle of one, or in a way that tells nothing.

    `language` is an ISO-639-1 code; of other languages only the marks are known.
    """
    text = text[-_LOOK_BACK:]
    while (shorter := text.rstrip().rstrip(_CLOSING)) != text:
        text = shorter
    if not text:
        return "unknown"
    if text.endswith("...") or text[-1] in _OPEN_MARKS:
        return "open"
    if text[-1] not in "?？؟" and _leads_on(text, _LEADING.get(language, frozenset())):
        return "open"
    if text[-1] in _FULL_STOPS and _leads_on(text, _MOSTLY_LEADING.get(language, frozenset())):
        return "unknown"
    if text[-1] in _FINAL_MARKS:
        return "finished"
    if _UNMARKED.search(text) or unicodedata.category(text[-1])[0] not in "LNM":
        return "unknown"
    return "open"


def _leads_on(text: str, words: frozenset[str]) -> bool:
    """Whether the last word is one of `words`, and no letter's name ("plan A")."""
    word = _WORD.search(text)
    return word is not None and word[1].lower() in words and not (len(word[1]) == 1 and word[1].isupper())
