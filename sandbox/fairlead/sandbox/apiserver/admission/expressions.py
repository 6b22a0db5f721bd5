"""CEL for admission: match conditions and policies, compiled once, and the variables that they may use.

Webhooks and policies bind the same variables. Values are plain JSON.
Source: k8s.io/apiserver/pkg/admission/plugin/{cel,webhook/matchconditions} (1.36).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fairlead.cel import ADMISSION, CompileError, EvaluationError, Program
from fairlead.cel import compile as compile_cel
from fairlead.sandbox.apiserver.admission.authorizer import authorizer_of
from fairlead.sandbox.apiserver.admission.matching import namespace_object, request_fields, seen_as
from fairlead.sandbox.apiserver.kinds.attributes import Attributes
from fairlead.sandbox.apiserver.kinds.base import Services
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.storage.records import Conversions

Bindings = dict[str, Any]
Converted = Callable[[Conversions], None]
"""Receives what the CEL of each webhook and policy that matches converts."""


@lru_cache(maxsize=4096)
def program(text: str) -> Program:
    """Raises CompileError."""
    return compile_cel(text, ADMISSION)


def bindings(attributes: Attributes, services: Services, version: str = "") -> Bindings:
    """The variables of a request. The policy adds `params` and `variables`."""
    return {
        "object": seen_as(attributes.object, attributes, version or attributes.kind.version),
        "oldObject": seen_as(attributes.old_object, attributes, version or attributes.kind.version),
        "request": request_fields(attributes, version),
        "namespaceObject": namespace_object(attributes, services),
        "params": None,
        "variables": {},
        "authorizer": authorizer_of(attributes, services),
    }


def conversions(owner: str, attributes: Attributes, *, times: int = 1) -> Conversions:
    """Of the request's objects, for CEL that `owner` evaluates in so many goes."""
    objects = times * sum(one is not None for one in (attributes.object, attributes.old_object))
    return Conversions(owner, attributes.operation, attributes.kind.plural, attributes.subresource, objects)


def evaluate(text: str, bound: Bindings) -> Any:
    """The value of an expression. Raises CompileError, EvaluationError."""
    return program(text).evaluate(bound)


def conditions_hold(conditions: list[Json] | None, bound: Bindings) -> bool:
    """Match conditions: a false one decides, even where others fail. Raises EvaluationError when one fails and none is false."""
    failed: Exception | None = None
    for condition in conditions or []:
        try:
            if evaluate(condition["expression"], bound) is not True:
                return False
        except (CompileError, EvaluationError) as error:
            failed = error
    if failed is not None:
        raise EvaluationError(str(failed))
    return True
