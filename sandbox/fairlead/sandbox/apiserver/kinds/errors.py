"""Field errors with the texts of the real apiserver.

`FieldError` renders as Go's `field.Error` does, which clients, kubectl and the recorded exchanges show. `statuses.py`
makes a 422 of a list of them.
Source: k8s.io/apimachinery/pkg/util/validation/field/errors.go (1.36).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class ErrorType(Enum):
    """The cause's reason in metav1.Status, and the beginning of the message."""

    NOT_FOUND = ("FieldValueNotFound", "Not found")
    REQUIRED = ("FieldValueRequired", "Required value")
    DUPLICATE = ("FieldValueDuplicate", "Duplicate value")
    INVALID = ("FieldValueInvalid", "Invalid value")
    NOT_SUPPORTED = ("FieldValueNotSupported", "Unsupported value")
    FORBIDDEN = ("FieldValueForbidden", "Forbidden")
    TOO_LONG = ("FieldValueTooLong", "Too long")
    TOO_MANY = ("FieldValueTooMany", "Too many")
    INTERNAL = ("InternalError", "Internal error")
    TYPE_INVALID = ("FieldValueTypeInvalid", "Invalid value")

    @property
    def reason(self) -> str:
        return self.value[0]

    @property
    def words(self) -> str:
        return self.value[1]


class _Omit:
    """Marks an error that shows no value (CRD validation rules do that)."""

    def __repr__(self) -> str:
        return "OMIT"


OMIT: Final = _Omit()
_VALUELESS = {ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG, ErrorType.INTERNAL}


@dataclass(frozen=True)
class FieldError:
    """One bad field. `str()` is `field: message`, as in the Status message; `.message` is the cause's message."""

    type: ErrorType
    field: str  # "spec.devices[0].name"; Go prints a nil path as "<nil>"
    detail: str = ""
    value: Any = OMIT

    @property
    def message(self) -> str:
        if self.type in _VALUELESS or self.value is OMIT:
            head = self.type.words
        else:
            head = f"{self.type.words}: {render(self.value)}"
        return f"{head}: {self.detail}" if self.detail else head

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def render(value: Any) -> str:
    """A bad value as Go prints it: %q for strings, JSON for the rest.

    >>> render("a b"), render(-1), render(True), render({"a": None}), render(None)
    ('"a b"', '-1', 'true', '{"a":null}', 'null')
    """
    if isinstance(value, str):
        return quote(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\v": "\\v",
}


def quote(text: str) -> str:
    r"""Go's %q.

    >>> print(quote('a "b"' + chr(10) + chr(1)))
    "a \"b\"\n\x01"
    """
    out = ['"']
    for char in text:
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        elif ord(char) < 0x10000:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(f"\\U{ord(char):08x}")
    out.append('"')
    return "".join(out)


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(ErrorType.REQUIRED, field, detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(ErrorType.INVALID, field, detail, value)


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(ErrorType.TYPE_INVALID, field, detail, value)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(ErrorType.FORBIDDEN, field, detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(ErrorType.DUPLICATE, field, "", value)


def not_found(field: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(ErrorType.NOT_FOUND, field, detail, value)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    """`supported` in the order of the message: Go sorts it in some places, not in all."""
    listed = ", ".join(quote(one) for one in supported)
    return FieldError(ErrorType.NOT_SUPPORTED, field, f"supported values: {listed}" if listed else "", value)


def too_long(field: str, limit_bytes: int) -> FieldError:
    return FieldError(ErrorType.TOO_LONG, field, f"may not be more than {limit_bytes} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError(ErrorType.TOO_MANY, field, f"must have at most {limit} items", count)


def internal(field: str, detail: str) -> FieldError:
    return FieldError(ErrorType.INTERNAL, field, detail)
