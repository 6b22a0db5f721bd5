"""Mutating and validating webhooks: which are called, in which order, and what their answers do.

Mutating ones run one after another in the order of their configurations' names, and those with reinvocation once more when
another changed the object after them; validating ones run together. A call that fails counts as its failurePolicy says. A patch that
does not fit has the text of Go's library.
Source: k8s.io/apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go, gopkg.in/evanphx/json-patch.v4 (1.36).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import copy
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fairlead.cel import EvaluationError
from fairlead.sandbox.apiserver import meta
from fairlead.sandbox.apiserver.admission.calling import Caller, CallError
from fairlead.sandbox.apiserver.admission.matching import (
    Converted,
    bindings,
    conditions_hold,
    conversions,
    matched_version,
    request_fields,
    seen_as,
    selectors_match,
)
from fairlead.sandbox.apiserver.kinds.base import Attributes, Services
from fairlead.sandbox.apiserver.kinds.errors import quote
from fairlead.sandbox.apiserver.kinds.request import DecodeError, Json, Rejected
from fairlead.sandbox.apiserver.patches import jsonpatch
from fairlead.sandbox.apiserver.state import WebhookCall
from fairlead.sandbox.apiserver.subresources.scale import scale_of, scaled

log = logging.getLogger(__name__)
GROUP = "admissionregistration.k8s.io"
REVIEW_VERSION = "admission.k8s.io/v1"
Called = Callable[[WebhookCall], None]
"""Receives every call before it is sent."""


@dataclass(frozen=True)
class Hook:
    """One webhook of one configuration."""

    configuration: str
    spec: Json

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def ignores_failures(self) -> bool:
        return bool(self.spec.get("failurePolicy") == "Ignore")


class Webhooks:
    def __init__(self, services: Services, caller: Caller, called: Called, converted: Converted) -> None:
        self._services = services
        self._caller = caller
        self._called = called
        self._converted = converted

    async def mutate(self, attributes: Attributes) -> None:
        """Call every mutating webhook that matches, and apply its patch. Raises Rejected."""
        again: list[Hook] = []
        called: list[Hook] = []
        changed = False
        for hook in self._hooks("mutatingwebhookconfigurations"):
            version = self._concerns(hook, attributes)
            if version is None:
                continue
            if await self._mutate(hook, attributes, version):
                changed = True
                again += [one for one in called if one not in again]
            called.append(hook)
        for hook in self._hooks("mutatingwebhookconfigurations") if changed else ():
            version = self._concerns(hook, attributes)  # of each, also where none is called again
            if hook in again and hook.spec.get("reinvocationPolicy") == "IfNeeded" and version is not None:
                await self._mutate(hook, attributes, version)

    async def validate(self, attributes: Attributes) -> None:
        """Call every validating webhook that matches, together. Raises Rejected with the first refusal in their order."""
        found = [(hook, self._concerns(hook, attributes)) for hook in self._hooks("validatingwebhookconfigurations")]
        calls = [self._validate(hook, attributes, version) for hook, version in found if version is not None]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    # -- which are called
    def _hooks(self, plural: str) -> Iterator[Hook]:
        for configuration in self._services.list(GROUP, plural):
            for spec in configuration.get("webhooks") or []:
                yield Hook(configuration["metadata"]["name"], spec)

    def _concerns(self, hook: Hook, attributes: Attributes) -> str | None:
        """The version of the object that the webhook gets, or None where it does not match."""
        spec = hook.spec
        version = matched_version(spec, spec.get("rules") or [], attributes, self._services)
        if version is None or not selectors_match(spec, attributes, self._services):
            return None
        if not spec.get("matchConditions"):
            return version
        self._converted(conversions(hook.name, attributes))
        try:
            bound = bindings(attributes, self._services, version)
            return version if conditions_hold(spec["matchConditions"], bound) else None
        except EvaluationError as error:
            if hook.ignores_failures:
                return None
            raise _forbidden(attributes, str(error)) from error

    # -- one call
    async def _ask(self, hook: Hook, attributes: Attributes, version: str, *, mutating: bool) -> Json:
        """The checked response. Raises CallError for one that cannot be used, Rejected for a refusal."""
        request = {"uid": self._caller.new_uid(), **request_fields(attributes, version)}
        options = request.pop("options")
        dry_run = request.pop("dryRun")
        request["object"] = seen_as(attributes.object, attributes, version)
        request["oldObject"] = seen_as(attributes.old_object, attributes, version)
        request["dryRun"] = dry_run
        request["options"] = options
        review = {"kind": "AdmissionReview", "apiVersion": REVIEW_VERSION, "request": request}
        self._note(hook, attributes, mutating=mutating)
        try:
            answer = await self._caller.post(hook.spec, review)
        except CallError as error:
            raise CallError(f"failed to call webhook: {error}") from error
        response = _checked(answer, request["uid"], mutating=mutating)
        attributes.context.warnings += [str(one) for one in response.get("warnings") or []]
        for key, value in (response.get("auditAnnotations") or {}).items():
            attributes.audit[f"{hook.name}/{key}"] = str(value)
        if not response.get("allowed"):
            raise _denied(hook.name, response.get("status") or {})
        return response

    def _note(self, hook: Hook, attributes: Attributes, *, mutating: bool) -> None:
        resource = attributes.kind.plural
        self._called(WebhookCall(hook.name, mutating, attributes.operation, resource, attributes.subresource))

    async def _mutate(self, hook: Hook, attributes: Attributes, version: str) -> bool:
        """Whether the object changed."""
        try:
            response = await self._ask(hook, attributes, version, mutating=True)
        except CallError as error:
            self._failed(hook, error)
            return False
        if not response.get("patch"):
            return False
        if attributes.object is None:
            raise _internal(
                "admission webhook attempted to modify the object, which is not supported for this operation"
            )
        before = attributes.object
        sub = attributes.kind.subresource("scale") if attributes.subresource == "scale" else None
        try:
            operations = decode_patch(response["patch"])
            if sub is not None:
                after = scaled(before, sub, apply_patch(scale_of(before, sub), operations))
            else:
                after = copy.deepcopy(apply_patch(before, operations))
            if attributes.body_kind is None:
                meta.decode(after, attributes.kind.kind)
                attributes.kind.strategy.decode(after)
                attributes.kind.strategy.default(after)
        except (PatchFailed, DecodeError) as error:
            raise _internal(str(error)) from error
        attributes.object = after
        return after != before

    async def _validate(self, hook: Hook, attributes: Attributes, version: str) -> None:
        try:
            await self._ask(hook, attributes, version, mutating=False)
        except CallError as error:
            self._failed(hook, error)

    def _failed(self, hook: Hook, error: CallError) -> None:
        text = f"failed calling webhook {quote(hook.name)}: {error}"
        if not hook.ignores_failures:
            raise _internal(text) from error
        log.warning("%s (configuration %s, failurePolicy Ignore)", text, hook.configuration)


def _checked(answer: Any, uid: str, *, mutating: bool) -> Json:
    """VerifyAdmissionResponse: the right type, our uid, a patch only from mutating webhooks."""
    invalid = "received invalid webhook response: "
    given = (answer.get("apiVersion", ""), answer.get("kind", ""))
    if given != (REVIEW_VERSION, "AdmissionReview"):
        raise CallError(
            f"{invalid}expected webhook response of {REVIEW_VERSION}, Kind=AdmissionReview, got {given[0] or '/'}, Kind={given[1]}"
        )
    response = answer.get("response")
    if not isinstance(response, dict):
        raise CallError(f"{invalid}webhook response was absent")
    if response.get("uid") != uid:
        raise CallError(f"{invalid}expected response.uid={quote(uid)}, got {quote(str(response.get('uid', '')))}")
    if not mutating:
        if response.get("patch"):
            raise CallError(f"{invalid}validating webhooks may not return response.patch")
        return response
    if response.get("patch") and not response.get("patchType"):
        raise CallError(f"{invalid}webhook returned response.patch but not response.patchType")
    if response.get("patchType") and not response.get("patch"):
        raise CallError(f"{invalid}webhook returned response.patchType but not response.patch")
    if response.get("patchType") not in {None, "", "JSONPatch"}:
        raise CallError(f"{invalid}unsupported patch type {quote(str(response['patchType']))}")
    return response


def _denied(name: str, status: Json) -> Rejected:
    """A refusal with the webhook's own status."""
    denied = f"admission webhook {quote(name)} denied the request"
    reason, message = str(status.get("reason") or ""), status.get("message")
    if message:
        denied = f"{denied}: {message}"
    elif reason:
        denied = f"{denied}: {reason}"
    else:
        denied = f"{denied} without explanation"
    code = status.get("code") or 0
    return Rejected(max(code, 400), reason, denied, status.get("details"))


def _internal(text: str) -> Rejected:
    return Rejected(500, "InternalError", f"Internal error occurred: {text}", {"causes": [{"message": text}]})


def _forbidden(attributes: Attributes, why: str) -> Rejected:
    kind, name = attributes.kind, attributes.name
    details = {"name": name, **({"group": kind.group} if kind.group else {}), "kind": kind.plural}
    return Rejected(403, "Forbidden", f"{kind.group_resource} {quote(name)} is forbidden: {why}", details)


class PatchFailed(Exception):  # noqa: N818  # what happened
    """The patch is no patch, or does not fit the object."""


def decode_patch(text: str) -> list[Json]:
    """`response.patch`: base64 of a JSON list of operations."""
    try:
        operations = json.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise PatchFailed(f"illegal patch: {error}") from error
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise PatchFailed("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    return operations


def apply_patch(obj: Json, operations: list[Json]) -> Json:
    """A new object. Raises PatchFailed with the first operation that does not fit."""
    document: Any = obj
    for operation in operations:
        try:
            document = jsonpatch.apply(document, [operation])
        except (jsonpatch.PatchError, jsonpatch.MalformedPatch) as error:
            raise PatchFailed(_go_words(document, operation, str(error))) from error
    if not isinstance(document, dict):
        raise PatchFailed("json: cannot unmarshal into Go value of type map[string]interface {}")
    return document


def _go_words(document: Any, operation: Json, otherwise: str) -> str:
    kind, path = operation.get("op"), str(operation.get("path", ""))
    steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
    parent: Any = document
    for step in steps[:-1]:
        parent = _child(parent, step)
    last = steps[-1] if steps else ""
    missing_parent = not isinstance(parent, (dict, list))
    match kind:
        case "add" if missing_parent:
            return f'add operation does not apply: doc is missing path: "{path}": missing value'
        case "remove" if missing_parent:
            return f'remove operation does not apply: doc is missing path: "{path}": missing value'
        case "remove" if isinstance(parent, dict):
            return f"error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value"
        case "remove" | "add":
            return (
                f"error in {kind} for path: '{path}': Unable to access invalid index: {last}: invalid index referenced"
            )
        case "replace" if missing_parent:
            return f"replace operation does not apply: doc is missing path: {path}: missing value"
        case "replace":
            return f"replace operation does not apply: doc is missing key: {path}: missing value"
        case "test":
            return f"testing value {path} failed: test failed"
        case "move" | "copy":
            source = operation.get("from", "")
            return f"{kind} operation does not apply: doc is missing from path: {source}: missing value"
        case _:
            return otherwise


def _child(parent: Any, step: str) -> Any:
    if isinstance(parent, dict):
        return parent.get(step)
    if isinstance(parent, list) and step.isdigit() and int(step) < len(parent):
        return parent[int(step)]
    return None
