"""admissionregistration.k8s.io: webhook configurations and admission policies, defaulted and checked when written.

A bad expression, a webhook without a URL or an unknown operation is refused here, not at the next pod. What they do to
requests is in `admission`. Source: pkg/apis/admissionregistration/{v1/defaults,validation} (1.36).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from urllib.parse import urlsplit

from fairlead.cel import CompileError, Environment
from fairlead.cel import compile as compile_cel
from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import qualified_name_complaints, subdomain_complaints

_OPERATIONS = ("*", "CREATE", "UPDATE", "DELETE", "CONNECT")
_SCOPES = ("*", "Cluster", "Namespaced")
_POLICIES = ("Fail", "Ignore")
_MATCH_POLICIES = ("Equivalent", "Exact")
_ACTIONS = ("Audit", "Deny", "Warn")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
MATCH_CONDITIONS = 64


def expression(text: str, path: str, environment: Environment) -> Iterator[FieldError]:
    """A new expression for admission: it must compile."""
    if not text.strip():
        yield required(path)
        return
    complaint = _complaint(text, environment)
    if complaint:
        yield invalid(path, text, f"compilation failed: {complaint}")


@functools.lru_cache(maxsize=1024)
def _complaint(text: str, environment: Environment) -> str:
    """Of the compiler; every cluster that a process starts is given the same expressions."""
    try:
        compile_cel(text, environment)
    except CompileError as error:
        return str(error)
    return ""


def match_conditions(given: list[Json] | None, path: str, environment: Environment) -> Iterator[FieldError]:
    seen = set()
    if len(given or []) > MATCH_CONDITIONS:
        yield too_many(path, len(given or []), MATCH_CONDITIONS)
    for index, one in enumerate(given or []):
        here, name = f"{path}[{index}]", one.get("name", "")
        yield from expression(one.get("expression", ""), f"{here}.expression", environment)
        if not name:
            yield required(f"{here}.name")
        else:
            yield from checks.each(qualified_name_complaints(name), f"{here}.name", name)
        if name in seen:
            yield duplicate(f"{here}.name", name)
        seen.add(name)


def _rule(rule: Json, path: str) -> Iterator[FieldError]:
    for key in ("apiGroups", "apiVersions", "resources"):
        if not rule.get(key):
            yield required(f"{path}.{key}")
    for key in ("apiGroups", "apiVersions"):
        values = rule.get(key) or []
        if "*" in values and len(values) > 1:
            yield invalid(
                f"{path}.{key}",
                values,
                "if '*' is present, must not specify other " + ("API groups" if key == "apiGroups" else "API versions"),
            )
    operations = rule.get("operations") or []
    if not operations:
        yield required(f"{path}.operations")
    if "*" in operations and len(operations) > 1:
        yield invalid(f"{path}.operations", operations, "if '*' is present, must not specify other operations")
    for index, one in enumerate(operations):
        if one not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", one, sorted(_OPERATIONS))
    if rule.get("scope") not in _SCOPES:
        yield not_supported(f"{path}.scope", rule.get("scope", ""), _SCOPES)


class WebhooksStrategy(BuiltIn):
    """Mutating and validating webhook configurations."""

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        seen = set()
        for index, hook in enumerate(obj.get("webhooks") or []):
            here, name = f"webhooks[{index}]", hook.get("name", "")
            yield from _webhook(hook, here, self.release.cel.new_admission)
            if name in seen:
                yield duplicate(f"{here}.name", name)
            seen.add(name)


def _webhook(hook: Json, path: str, environment: Environment) -> Iterator[FieldError]:
    name = hook.get("name", "")
    if not name:
        yield required(f"{path}.name")
    else:
        complaints = subdomain_complaints(name)
        yield from checks.each(complaints, f"{path}.name", name)
        if not complaints and len(name.split(".")) < 3:
            yield invalid(f"{path}.name", name, "should be a domain with at least three segments separated by dots")
    for index, rule in enumerate(hook.get("rules") or []):
        yield from _rule(rule, f"{path}.rules[{index}]")
    yield from checks.unsupported(hook.get("failurePolicy"), _POLICIES, f"{path}.failurePolicy")
    yield from checks.unsupported(hook.get("matchPolicy"), _MATCH_POLICIES, f"{path}.matchPolicy")
    side_effects = hook.get("sideEffects")
    if side_effects is None:
        yield required(f"{path}.sideEffects", 'must specify one of "None", "NoneOnDryRun"')
    elif side_effects not in {"None", "NoneOnDryRun"}:
        yield not_supported(f"{path}.sideEffects", side_effects, ("None", "NoneOnDryRun"))
    versions = hook.get("admissionReviewVersions") or []
    if not versions:
        yield required(f"{path}.admissionReviewVersions", 'must specify one of "v1", "v1beta1"')
    elif not {"v1", "v1beta1"} & set(versions):
        yield invalid(f"{path}.admissionReviewVersions", versions, 'must include at least one of "v1", "v1beta1"')
    timeout = hook.get("timeoutSeconds", 10)
    if not 1 <= timeout <= 30:
        yield invalid(f"{path}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
    for key in ("namespaceSelector", "objectSelector"):
        yield from checks.label_selector(hook.get(key), f"{path}.{key}")
    yield from _client(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from match_conditions(hook.get("matchConditions"), f"{path}.matchConditions", environment)


def _client(client: Json, path: str) -> Iterator[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        parts = urlsplit(url)
        if parts.scheme != "https":
            yield invalid(
                f"{path}.url", url, "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            )
        if not parts.netloc:
            yield invalid(f"{path}.url", url, "host must be specified; desired format: https://host[/path]")
        if parts.query:
            yield invalid(f"{path}.url", url, "query parameters are not permitted; desired format: https://host[/path]")
    else:
        for key in ("name", "namespace"):
            if not (service or {}).get(key):
                yield required(f"{path}.service.{key}", f"service {key} is required")


class PolicyStrategy(BuiltIn):
    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec, environment = obj.get("spec", {}), self.release.cel.new_admission
        yield from checks.unsupported(spec.get("failurePolicy"), _POLICIES, "spec.failurePolicy")
        constraints = spec.get("matchConstraints")
        if constraints is None:
            yield required("spec.matchConstraints")
        else:
            if not constraints.get("resourceRules"):
                yield required("spec.matchConstraints.resourceRules")
            yield from _match(constraints, "spec.matchConstraints")
        yield from match_conditions(spec.get("matchConditions"), "spec.matchConditions", environment)
        names = set()
        for index, variable in enumerate(spec.get("variables") or []):
            here, name = f"spec.variables[{index}]", variable.get("name", "")
            if not name.isidentifier():
                yield invalid(f"{here}.name", name, "name is not a valid CEL identifier")
            if name in names:
                yield duplicate(f"{here}.name", name)
            names.add(name)
            yield from expression(variable.get("expression", ""), f"{here}.expression", environment)
        if not spec.get("validations") and not spec.get("auditAnnotations"):
            yield required("spec.validations", "validations or auditAnnotations must contain at least one item")
        for index, one in enumerate(spec.get("validations") or []):
            here = f"spec.validations[{index}]"
            yield from expression(one.get("expression", ""), f"{here}.expression", environment)
            if one.get("messageExpression"):
                yield from expression(one["messageExpression"], f"{here}.messageExpression", environment)
            yield from checks.unsupported(one.get("reason"), _REASONS, f"{here}.reason")
        for index, one in enumerate(spec.get("auditAnnotations") or []):
            here = f"spec.auditAnnotations[{index}].valueExpression"
            yield from expression(one.get("valueExpression", ""), here, environment)


class PolicyBindingStrategy(BuiltIn):
    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj.get("spec", {})
        if not spec.get("policyName"):
            yield required("spec.policyName")
        actions = spec.get("validationActions") or []
        if not actions:
            yield required("spec.validationActions", "at least one validation action is required")
        for index, action in enumerate(actions):
            if action not in _ACTIONS:
                yield not_supported(f"spec.validationActions[{index}]", action, _ACTIONS)
        if {"Deny", "Warn"} <= set(actions):
            yield invalid(
                "spec.validationActions",
                actions,
                "must not contain both Deny and Warn (repeating the same validation failure information in the API "
                "response and headers serves no purpose)",
            )
        if spec.get("matchResources") is not None:
            yield from _match(spec["matchResources"], "spec.matchResources")
        param = spec.get("paramRef")
        if param is not None:
            if bool(param.get("name")) == (param.get("selector") is not None):
                yield required("spec.paramRef", "one of name or selector must be specified")
            if param.get("parameterNotFoundAction") not in {"Allow", "Deny"}:
                yield required("spec.paramRef.parameterNotFoundAction")


def _match(match: Json, path: str) -> Iterator[FieldError]:
    for key in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(key) or []):
            yield from _rule(rule, f"{path}.{key}[{index}]")
    for key in ("namespaceSelector", "objectSelector"):
        yield from checks.label_selector(match.get(key), f"{path}.{key}")


class UnsupportedPolicyStrategy(BuiltIn):
    """MutatingAdmissionPolicies are listed in discovery but refused, since nothing would apply them."""

    def validate_create(self, obj: Json, context: Context) -> list[FieldError]:
        return [forbidden("spec", "this apiserver does not apply mutating admission policies; use a mutating webhook")]
