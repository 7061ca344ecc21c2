"""Matchers of grammars that are compiled first, as the engine does before a request is queued."""

from __future__ import annotations

from sensorium.engine.execution.grammar import GrammarMatcher
from sensorium.engine.execution.grammar_store import GrammarStore
from sensorium.protocols.engine.messages import Grammar


def matcher_of(store: GrammarStore, grammar: Grammar) -> GrammarMatcher:
    """At the start of the answer."""
    store.compile(grammar)
    return store.matcher(grammar)
