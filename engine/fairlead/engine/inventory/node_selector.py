"""Whether a node satisfies a NodeSelector: one answer for pods (affinity), slices, devices and allocations.

Terms are OR-ed, the requirements of a term AND-ed; a term without requirements matches nothing. The only field is
metadata.name.
Source: component-helpers nodeaffinity.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.kube.core import NodeSelector, NodeSelectorTerm
from fairlead.kube.labels import Requirement

NODE_NAME = "metadata.name"


def matches(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    return any(term_matches(term, name, labels) for term in selector.node_selector_terms)


def term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(
        Requirement(rule.key, rule.operator, rule.values).matches(labels) for rule in term.match_expressions
    ) and all(_field_matches(rule.key, rule.operator, rule.values, name) for rule in term.match_fields)


def unmet(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> str:
    """The first requirement that the node does not meet, where the selector has one term; "" otherwise."""
    if len(selector.node_selector_terms) != 1:
        return ""
    (term,) = selector.node_selector_terms
    rules = [
        *(
            rule
            for rule in term.match_expressions
            if not Requirement(rule.key, rule.operator, rule.values).matches(labels)
        ),
        *(rule for rule in term.match_fields if not _field_matches(rule.key, rule.operator, rule.values, name)),
    ]
    return " ".join(filter(None, (rules[0].key, rules[0].operator, ",".join(rules[0].values[:4])))) if rules else ""


def pinned_node(selector: NodeSelector | None) -> str | None:
    """The one node that the selector allows by name, if it does so in every term."""
    if selector is None or not selector.node_selector_terms:
        return None
    names = {_term_pin(term) for term in selector.node_selector_terms}
    return names.pop() if len(names) == 1 else None


def _term_pin(term: NodeSelectorTerm) -> str | None:
    for rule in term.match_fields:
        if rule.key == NODE_NAME and rule.operator == "In" and len(rule.values) == 1:
            return rule.values[0]
    return None


def _field_matches(key: str, operator: str, values: tuple[str, ...], name: str) -> bool:
    if key != NODE_NAME:
        return False
    return name in values if operator == "In" else operator == "NotIn" and name not in values
