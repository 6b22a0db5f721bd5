"""ValidatingAdmissionPolicies: expressions over a request, applied through bindings. Fairlead's allocation fence is one.

A policy without a binding does nothing. Variables are computed in their order, at most once per request and binding; one
that fails is missing for those that read it. Source: k8s.io/apiserver/pkg/admission/plugin/policy/validating (1.36).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairlead.cel import CompileError, EvaluationError
from fairlead.sandbox.apiserver.admission.matching import (
    Bindings,
    Converted,
    bindings,
    conditions_hold,
    conversions,
    evaluate,
    matched_version,
    rule_matches,
    selectors_match,
    selects,
)
from fairlead.sandbox.apiserver.kinds.base import Attributes, Services
from fairlead.sandbox.apiserver.kinds.errors import quote
from fairlead.sandbox.apiserver.kinds.request import Json, Rejected

GROUP = "admissionregistration.k8s.io"
FAILURE_ANNOTATION = "validation.policy.admission.k8s.io/validation_failure"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}
MESSAGE_LIMIT = 5 * 1024
GOES = 3
"""Validations, messages and audit annotations are evaluated apart, whether or not there are any."""


@dataclass(frozen=True)
class Decision:
    """One validation that did not hold, or could not be evaluated."""

    message: str
    reason: str


class Policies:
    def __init__(self, services: Services, converted: Converted) -> None:
        self._services = services
        self._converted = converted

    def validate(self, attributes: Attributes) -> None:
        """Raises Rejected with the first denial; warns and annotates as the bindings say."""
        policies = [
            policy
            for policy in self._services.list(GROUP, "validatingadmissionpolicies")
            if self._matches(policy["spec"].get("matchConstraints"), attributes)
        ]
        if not policies:
            return
        by_policy: dict[str, list[Json]] = {}
        for binding in self._services.list(GROUP, "validatingadmissionpolicybindings"):
            by_policy.setdefault(binding["spec"]["policyName"], []).append(binding)
        denials: list[tuple[str, Decision]] = []
        for policy in policies:
            name = policy["metadata"]["name"]
            for binding in by_policy.get(name, ()):
                resources = binding["spec"].get("matchResources")
                if resources is None or self._matches(resources, attributes):
                    denials += self._apply(policy, binding, attributes)
        if denials:
            raise _denied(attributes, *denials[0])

    def _matches(self, match: Json | None, attributes: Attributes) -> bool:
        if match is None:
            return False
        if any(rule_matches(rule, attributes) for rule in match.get("excludeResourceRules") or []):
            return False
        rules = match.get("resourceRules")
        if rules and matched_version(match, rules, attributes, self._services) is None:
            return False
        return selectors_match(match, attributes, self._services)

    def _apply(self, policy: Json, binding: Json, attributes: Attributes) -> Iterator[tuple[str, Decision]]:
        """The denials of one policy through one binding; its other actions (warn, audit) are done at once."""
        where = f"ValidatingAdmissionPolicy '{policy['metadata']['name']}' with binding '{binding['metadata']['name']}'"
        actions = binding["spec"].get("validationActions") or []
        for decision in self._decide(policy, binding["spec"], attributes):
            if "Warn" in actions:
                attributes.context.warnings.append(f"Validation failed for {where}: {decision.message}")
            if "Audit" in actions:
                attributes.audit[FAILURE_ANNOTATION] = json.dumps([{"message": decision.message, "policy": where}])
            if "Deny" in actions:
                yield where, decision

    def _decide(self, policy: Json, binding: Json, attributes: Attributes) -> Iterator[Decision]:
        spec, name = policy["spec"], policy["metadata"]["name"]
        strict = spec.get("failurePolicy", "Fail") == "Fail"
        bound = bindings(attributes, self._services)
        try:
            all_params = self._params(spec, binding, attributes)
        except EvaluationError as error:
            if strict:
                yield Decision(str(error), "Invalid")
            return
        for params in all_params:
            bound["params"] = params
            if spec.get("matchConditions"):
                self._converted(conversions(name, attributes))
            try:
                if not conditions_hold(spec.get("matchConditions"), bound):
                    continue
            except EvaluationError as error:
                if strict:
                    yield Decision(str(error), "Invalid")
                continue
            self._converted(conversions(name, attributes, times=GOES))
            bound["variables"], failed = _variables(spec, bound)
            yield from _validations(spec, bound, failed, strict=strict)
            _audit(spec, bound, attributes)

    def _params(self, spec: Json, binding: Json, attributes: Attributes) -> list[Json | None]:
        """The parameter objects to evaluate with, each in turn; [None] for a policy without."""
        kind, ref = spec.get("paramKind"), binding.get("paramRef")
        if kind is None:
            return [None]
        if ref is None:
            return [None]
        group, _, version = kind["apiVersion"].rpartition("/")
        served = self._services.registry.of_kind(group, version, kind["kind"])
        if served is None:
            raise EvaluationError(
                f"failed to find resource referenced by paramKind: '{kind['apiVersion']}, Kind={kind['kind']}'"
            )
        namespace = (ref.get("namespace") or attributes.namespace) if served.namespaced else ""
        if ref.get("name"):
            one = self._services.get(served.group, served.plural, ref["name"], namespace)
            found: list[Json | None] = [] if one is None else [one]
        else:
            found = [
                one
                for one in self._services.list(served.group, served.plural, namespace)
                if selects(ref.get("selector"), one["metadata"].get("labels") or {})
            ]
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise EvaluationError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return found


def _variables(spec: Json, bound: Bindings) -> tuple[Json, dict[str, str]]:
    """The values of the variables, and the errors of those that have none."""
    values: Json = {}
    failed: dict[str, str] = {}
    for variable in spec.get("variables") or []:
        try:
            values[variable["name"]] = evaluate(variable["expression"], {**bound, "variables": values})
        except (CompileError, EvaluationError) as error:
            failed[variable["name"]] = _why(error, failed)
    return values, failed


def _why(error: Exception, failed: dict[str, str]) -> str:
    """The text of an error; where a variable was missing, why it is."""
    text = str(error)
    name = text.removeprefix("no such key: ")
    return f"composited variable {quote(name)} fails to evaluate: {failed[name]}" if name in failed else text


def _validations(spec: Json, bound: Bindings, failed: dict[str, str], *, strict: bool) -> Iterator[Decision]:
    for one in spec.get("validations") or []:
        reason = one.get("reason") or "Invalid"
        text = one["expression"].strip()
        try:
            value = evaluate(one["expression"], bound)
        except (CompileError, EvaluationError) as error:
            if strict:
                yield Decision(f"expression '{text}' resulted in error: {_why(error, failed)}", reason)
            continue
        if value is not True:
            yield Decision(_message(one, text, bound), reason)


def _message(one: Json, text: str, bound: Bindings) -> str:
    """messageExpression, else message, else the expression itself."""
    if one.get("messageExpression"):
        try:
            said = evaluate(one["messageExpression"], bound)
        except (CompileError, EvaluationError):
            said = None
        if isinstance(said, str) and said.strip() and "\n" not in said and len(said) <= MESSAGE_LIMIT:
            return said.strip()
    return str(one.get("message") or "").strip() or f"failed expression: {text}"


def _audit(spec: Json, bound: Bindings, attributes: Attributes) -> None:
    for one in spec.get("auditAnnotations") or []:
        try:
            value: Any = evaluate(one["valueExpression"], bound)
        except (CompileError, EvaluationError):
            continue
        if isinstance(value, str) and value.strip():
            attributes.audit[one["key"]] = value.strip()


def _denied(attributes: Attributes, where: str, decision: Decision) -> Rejected:
    kind, name = attributes.kind, attributes.name
    message = f"{where} denied request: {decision.message}"
    details: Json = {"name": name, "group": kind.group, "kind": kind.plural}
    details["causes"] = [{"message": message}]
    return Rejected(
        _CODES.get(decision.reason, 422),
        decision.reason,
        f"{kind.group_resource} {quote(name)} is forbidden: {message}",
        {key: value for key, value in details.items() if value},
    )
