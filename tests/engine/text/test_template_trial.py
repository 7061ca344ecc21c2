"""Templates that never end or take all memory are found out in a process that is given up."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from sensorium.actors import served_model as loaded
from sensorium.engine.text import template_trial
from sensorium.engine.text.chat_template import read_template
from sensorium.engine.text.template_trial import MAX_SOURCE, fault_of
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.protocols.errors import ModelLoadError
from support.chat_templates import CHATML
from tokenizers import Tokenizer, models

FINE = "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        FINE,
        CHATML,
        "{% for m in messages %}{% generation %}{{ m | tojson }}{% endgeneration %}{% break %}{% endfor %}",
        "{{ strftime_now('%Y') }}{{ raise_exception('no') }}",
        "{% for %}",
        "{{ nothing.at_all }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 1 / 0 }}",
    ],
)
def test_what_ends_is_no_fault_be_it_a_refusal(source: str) -> None:
    assert fault_of(source, (("bos_token", "<s>"),)) is None


@pytest.mark.parametrize(
    "source",
    [
        "{% set x = 'a' * 10**9 %}",
        "{{ '%999999999d' % 1 }}",
        "{{ 'a'.center(10**9) }}",
        "{% set n = namespace(x='a') %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% if tools %}{{ 'a' * 10**9 }}{% endif %}",
        "{% if messages[0].content is not string %}{{ 'a' * 10**9 }}{% endif %}",
        "{% generation %}{{ bos_token * 10**9 }}{% endgeneration %}",
    ],
)
def test_what_takes_too_much_memory_is_found_out(source: str) -> None:
    assert fault_of(source, (("bos_token", "<s>"),)) == (
        "takes more than 512 MiB of memory for a conversation of a few words"
    )


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 10 ** (10 ** 8) }}",  # one operation that no thread can interrupt
        "{{ a }}" * (MAX_SOURCE // 8),
    ],
)
def test_what_does_not_end_is_given_up(source: str) -> None:
    assert fault_of(source, max_cpu_s=1) == (
        "does not end within 1 s of processor time for a conversation of a few words"
    )


def test_what_grows_and_what_is_too_long_is_found_out() -> None:
    assert "makes more than" in (fault_of("{% for i in range(99999) %}{{ 'a' * 16 }}{% endfor %}") or "")
    assert fault_of("a" * (MAX_SOURCE + 1)) == f"has {MAX_SOURCE + 1} characters; allowed: {MAX_SOURCE}"


def test_a_trial_that_fails_by_itself_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_trial, "__name__", "sensorium.nowhere")
    with pytest.raises(ModelLoadError, match=r"the chat template cannot be tried: .*sensorium\.nowhere"):
        fault_of("never tried before")


def test_a_template_of_the_operators_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text("{% set x = 'a' * 10**9 %}")
    with pytest.raises(ModelLoadError, match=rf"^the chat template {path} takes more than 512 MiB"):
        read_template(path)


def test_those_of_a_checkpoint_are_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def text(chat: str, tools: str) -> TextTokenizer:
        backend = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
        found = TextTokenizer(backend, chat_template=chat, tool_template=tools)
        loaded._give_up_templates("m", found)
        return found

    bad = "{% set x = 'a' * 10**9 %}"
    with caplog.at_level(logging.ERROR):
        both, tools, fine = text(bad, FINE), text(FINE, bad), text(FINE, CHATML)
    assert (both.chat_template, both.tool_template) == (None, None)
    assert (tools.chat_template, tools.tool_template) == (FINE, FINE)
    assert (fine.chat_template, fine.tool_template) == (FINE, CHATML)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("m: its chat template takes more than 512 MiB of memory")
    assert second.startswith("m: its chat template for tools takes more than")
