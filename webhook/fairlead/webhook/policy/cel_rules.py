"""A policy's own rules: CEL expressions over the object.

The language is that of a ValidatingAdmissionPolicy with `object`, `oldObject`, `request` and `namespaceObject`; there is no
`authorizer` and no `params`. Each expression has a cost budget, so that no rule can hold up a review. A rule that fails, or
exceeds its budget, counts as broken, with the reason: an object that cannot be judged must not pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from fairlead.api.policy import CelRule
from fairlead.cel import CompileError, EvaluationError, Program, compile  # noqa: A004 - CEL's own word
from fairlead.cel import types as t
from fairlead.cel.kubernetes import BASE
from fairlead.webhook.policy.policies import Policies, finding
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import Finding

BUDGET: Final = 100_000
"""What all rules may cost in one review, in the apiserver's units, each an equal part of it: a hundredth of what it allows one policy. A unit takes up
to 1 µs, so rules hold up the webhook for less than 50 ms, however large the object is."""
BUDGET_MIN: Final = 1_000
"""Of one rule; a loop over the containers of a usual pod costs less than 100."""
VARIABLES: Final = ("object", "oldObject", "request", "namespaceObject")
ENVIRONMENT: Final = BASE.extend(variables=dict.fromkeys(VARIABLES, t.DYN))
MESSAGE_MAX: Final = 1024


@lru_cache(maxsize=256)
def compiled(text: str, result: t.Type) -> Program:
    """Raises CompileError."""
    return compile(text, ENVIRONMENT, result=result)


def rule_faults(rule: CelRule, path: str) -> Iterator[str]:
    """Why the rule cannot be admitted, at the policy's own review."""
    for name, text, result in (
        ("expression", rule.expression, t.BOOL),
        ("messageExpression", rule.message_expression, t.STRING),
    ):
        if text is None:
            continue
        try:
            compiled(text, result)
        except CompileError as error:
            yield f"{path}.{name}: {error}"


def rule_findings(policies: Policies, review: Review, facts: Facts) -> Iterator[Finding]:
    """The rules that the review's object breaks, or that fail."""
    concerned = [(policy, rule) for policy in policies for rule in policy.spec.rules if review.kind in rule.kinds]
    if not concerned:
        return
    bindings = _bindings(review, facts)
    budget = max(BUDGET_MIN, BUDGET // len(concerned))
    for policy, rule in concerned:
        text = _broken(rule, bindings, budget)
        if text is not None:
            yield finding(policy, "rules", f"{rule.name}: {text}")


def _broken(rule: CelRule, bindings: Mapping[str, Any], budget: int) -> str | None:
    try:
        if compiled(rule.expression, t.BOOL).evaluate(bindings, budget) is True:
            return None
    except (CompileError, EvaluationError) as error:
        return f"cannot be judged: {_line(error)}; ask whoever wrote the policy"
    if rule.message_expression is not None:
        try:
            text = compiled(rule.message_expression, t.STRING).evaluate(bindings, min(budget, BUDGET_MIN))
        except (CompileError, EvaluationError):
            text = ""
        if isinstance(text, str) and text.strip():
            return " ".join(text.split())[:MESSAGE_MAX]
    return rule.message or f"failed expression: {' '.join(rule.expression.split())}"


def _bindings(review: Review, facts: Facts) -> dict[str, Any]:
    request = {
        "uid": review.uid,
        "kind": {"kind": review.kind, "group": review.group},
        "resource": {"group": review.group, "resource": review.resource},
        "operation": review.operation,
        "namespace": review.namespace,
        "name": review.name,
        "userInfo": {"username": review.username, "groups": sorted(review.groups)},
        "dryRun": review.dry_run,
    }
    namespace = {"metadata": {"name": review.namespace, "labels": dict(facts.namespace_labels)}}
    return {"object": review.object, "oldObject": review.old, "request": request, "namespaceObject": namespace}


def _line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
