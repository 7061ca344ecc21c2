"""A client that stops sending in an open turn sees all that was understood; the turn stays open."""

from __future__ import annotations

import math

import pytest
from sensorium.realtime.turns.stalled_input import MAX_GAP_S, Stall
from support.dialogs import COMMITTED, Dialog


@pytest.mark.parametrize("detection", [True, False])
@pytest.mark.parametrize("delay", ["minimal", "medium", "xhigh"])
def test_what_is_there_is_asked_about_once_more_and_all_of_it_shown(detection: bool, delay: str) -> None:
    dialog = Dialog(delay=delay, detection=detection)
    dialog.speak(700, "press one")
    dialog.speak(200)
    if dialog.pending:
        dialog.answer("press one for")
    shown = dialog.text("item_1")
    dialog.wait(0.1)
    assert not dialog.pending, "a frame may be late"
    dialog.wait(1.0)
    question = dialog.question()
    assert (question.final, question.end_sample) == (False, dialog.num_samples // 512 * 512)
    dialog.answer("press one for sales and two")
    assert dialog.text("item_1").startswith(shown)
    assert dialog.text("item_1") == "press one for sales and two"
    dialog.wait(30.0)
    assert not dialog.pending, "once"
    assert not dialog.of("committed"), "the turn is open"


def test_the_turn_goes_on_when_sound_comes_again() -> None:
    dialog = Dialog(delay="low")
    dialog.speak(700, "press one")
    dialog.wait(2.0)
    if dialog.pending:
        dialog.answer("press one for")
    dialog.speak(1500, "press one for sales")
    dialog.silence(256)
    dialog.answer("press one for sales.")
    dialog.silence(1000)
    assert dialog.text("item_1") == "press one for sales."
    assert [name for name in dialog.names() if name in COMMITTED] == COMMITTED


def test_an_answer_that_is_due_is_waited_for_and_a_failure_not_asked_again() -> None:
    dialog = Dialog(delay="low")
    dialog.speak(700, "one")
    dialog.speak(700)
    first = dialog.question()
    dialog.wait(2.0)
    assert dialog.question() == first
    dialog.answer("one two")
    assert dialog.question().end_sample > first.end_sample
    dialog.fail()
    dialog.wait(5.0)
    assert not dialog.pending
    assert dialog.text("item_1") == "one two"


def test_a_pause_was_asked_about_already() -> None:
    dialog = Dialog(delay="xhigh")
    dialog.speak(700, "yes")
    dialog.silence(256)
    assert dialog.question().final
    dialog.answer("yes please")
    dialog.wait(3.0)
    assert not dialog.pending
    assert dialog.text("item_1") == "yes please"
    assert not dialog.of("committed")


def test_a_client_that_sends_much_at_once_is_not_taken_for_one_that_stopped() -> None:
    stall = Stall()
    assert stall.deadline(0.3) == math.inf
    stall.sounded(1.0, now=0.0)
    assert stall.deadline(0.3) == pytest.approx(1.3)
    stall.sounded(0.02, now=1.2)
    assert stall.deadline(0.3) == pytest.approx(1.2 + 1.2 + 0.3), "the gap before counts, too"
    stall.begin()
    assert stall.deadline(0.3) == math.inf
    stall.sounded(60.0, now=100.0)
    assert not stall.is_begun
    assert stall.deadline(0.0) == 100.0 + MAX_GAP_S
