"""What people read when something goes wrong, and `--help`: one style, in the field's words.

A message says what is wrong, what is allowed and what to do, as a sentence with a capital and a full stop or
as a fragment with neither. The messages are found in the sources: every text that is given to something that
makes an error, or to what prints a line on standard error.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from sensorium.actors.commands import app
from support.imports import ROOT, nodes

ROOMS: Final = ("actors", "client", "engine", "kernels", "media", "protocols", "realtime", "testing")
PRINTS_A_LINE: Final = frozenset({"fail", "usage"})
NOT_SHOWN: Final = frozenset({"AssertionError"})
"""Errors that only our own bugs raise."""
HOUSE_WORDS: Final = re.compile(
    r"""\b(
        told | tells? | said | says? | heard | hears? | hearing | asked | wish(es|ed)? | apart | beside
        | behind(?!\ a\ proxy\b)
        | nobody | whoever | guests? | (is|are|was|were|be)\ had | (is|are|was|were)\ no(?!\ longer\b)
        | (go|goes|going)\ (on|without) | but\ as | in\ hand | one's\ own | makes\ no\ sense | looked\ at
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words of an older dialect of this project. docs/glossary.md has the field's."""
THERE_IS_NONE: Final = re.compile(r"\bthere (is|are) no\b", re.IGNORECASE)
"""Which is plain English, unlike `x is no y`."""
QUOTED: Final = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\{\}")
"""Names and values are as they are."""
SNAKE_CASE: Final = re.compile(r"(?<![\w./-])[a-z]+_[a-z_]+(?![\w./(=-])")
MAX_SUMMARY_CHARS: Final = 110


class Message(NamedTuple):
    """One text of an error, and where it stands."""

    place: str
    maker: str
    """The error, or the function that makes or prints it."""
    text: str
    """`{}` stands for what is filled in."""


def template(node: ast.expr) -> str:
    """The text that an expression is; `{}` where it is computed."""
    match node:
        case ast.Constant(str() as text):
            return text
        case ast.JoinedStr(values):
            return "".join(map(template, values))
        case ast.BinOp(left, ast.Add(), right):
            return template(left) + template(right)
        case _:
            return "{}"


def paths() -> list[Path]:
    """The sources that users run."""
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


@cache
def makers() -> frozenset[str]:
    """Functions that return an error, by what they declare."""
    return frozenset(
        node.name
        for path in paths()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns).endswith("Error")
    )


def called(node: ast.Call) -> str:
    """The plain name of what is called."""
    return ast.unparse(node.func).rpartition(".")[2]


def messages() -> Iterator[Message]:
    """Every text of an error that has words."""
    for path in paths():
        for node in nodes(path):
            if not isinstance(node, ast.Call):
                continue
            name = called(node)
            is_error = name.endswith("Error") and name not in NOT_SHOWN
            if is_error or name in makers() or name in PRINTS_A_LINE:
                for each in node.args:
                    text = template(each)
                    if " " in text:
                        yield Message(f"{path.relative_to(ROOT)}:{each.lineno}", name, text)


MESSAGES: Final = tuple(messages())


def faults(is_wrong: object) -> list[str]:
    """The messages of which something is true, to be shown."""
    assert callable(is_wrong)
    return [f"{each.place}: {each.text}" for each in MESSAGES if is_wrong(each)]


def words_of(text: str) -> str:
    """A text without what it quotes and fills in."""
    return THERE_IS_NONE.sub("there", QUOTED.sub("X", text))


def test_messages_are_found() -> None:
    assert len(MESSAGES) > 600
    assert {"unsupported", "wrong"} <= {each.maker for each in MESSAGES}


def test_messages_use_the_words_of_the_field() -> None:
    assert not faults(lambda each: HOUSE_WORDS.search(words_of(each.text)))


def test_a_message_is_a_sentence_or_a_fragment() -> None:
    """A capital at its beginning and a stop at its end go together."""

    def is_wrong(message: Message) -> bool:
        text = message.text
        begins = re.match(r"[A-Z][a-z]* |[A-Z][a-z]+[,']", text) is not None
        ends = text.endswith((".", ".)"))
        if text.startswith("Expected `"):
            return False  # in msgspec's words, which `fault` reads
        is_open = text.endswith(("{}", "{}?")) or text.startswith("{}")  # the rest is filled in
        return begins != ends and not is_open

    assert not faults(is_wrong)


def test_what_is_allowed_stands_behind_a_semicolon() -> None:
    assert not faults(lambda each: re.search(r"(?<!; )\ballowed: ", each.text.removeprefix("allowed: ")))


def test_options_are_written_as_on_the_command_line() -> None:
    assert not faults(lambda each: re.search(r"(?<!`)--[a-z]+_", each.text))


def test_fields_are_quoted() -> None:
    """In what clients are answered: a name with underscores stands in backquotes."""
    rooms = ("protocols/", "realtime/", "actors/")
    answers = {"BadRequestError", "TooLargeError", "MediaError", "ClientError", "wrong", "unsupported"}
    assert not faults(
        lambda each: (
            each.place.startswith(rooms)
            and each.maker in answers
            and SNAKE_CASE.search(QUOTED.sub("", each.text))
        )
    )


COMMANDS: Final = [name for name in app.resolved_commands() if not name.startswith("-")]


def help_of(command: str) -> str:
    """The docstring of a command, which its help is made of."""
    function = app[command].default_command
    assert function is not None
    return inspect.getdoc(function) or ""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_begins_with_what_it_does_and_shows_examples(command: str) -> None:
    summary = help_of(command).partition("\n\n")[0]
    assert re.fullmatch(r"[A-Z][^.\n]+\.", summary), summary
    assert len(summary) <= MAX_SUMMARY_CHARS
    examples = re.findall(
        r"^    +(\S.*)$", help_of(command).partition("Examples:")[2].partition("Param")[0], re.M
    )
    assert examples
    assert all("sensorium " in each for each in examples), examples


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_of_whole_sentences(command: str) -> None:
    for argument in app[command].assemble_argument_collection(parse_docstring=True):
        if not argument.parse or argument.children:
            continue
        text = " ".join((argument.parameter.help or "").split())
        assert re.match(r"[A-Z0-9-]|[a-z]+[,:. ]", text), (argument.name, text)
        assert text.endswith("."), (argument.name, text)
        assert not HOUSE_WORDS.search(words_of(text)), (argument.name, text)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_uses_the_words_of_the_field(command: str) -> None:
    assert not HOUSE_WORDS.search(words_of(help_of(command)))


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("`said` is 'no'; allowed: true", False),
        ("there is no such file", False),
        ("the file is no longer there", False),
        ("{} is no option", True),
        ("text beside audio", True),
        ("it goes without a beam", True),
    ],
)
def test_the_words_are_found(text: str, is_found: bool) -> None:
    assert (HOUSE_WORDS.search(words_of(text)) is not None) == is_found
