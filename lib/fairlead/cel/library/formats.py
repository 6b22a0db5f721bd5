"""Named formats: `format.dns1123Label().validate(x)` is optional.none() for a valid text, else the list of what is wrong.

Source: k8s.io/apiserver/pkg/cel/library/format.go, apimachinery validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.library.net import is_url
from fairlead.cel.values import NONE, Format, Optional

FORMATS: Final = Library("kubernetes.format")

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_1035: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII)
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})", re.ASCII)
Validator = Callable[[str], list[object]]


def _pattern(pattern: re.Pattern[str], limit: int, what: str, *, prefix: bool = False) -> Validator:
    def validate(text: str) -> list[object]:
        if prefix and len(text) > 1 and text.endswith("-"):
            text = text[:-2] + "a"  # both, as Kubernetes does
        complaints: list[object] = []
        if len(text) > limit:
            complaints.append(f"must be no more than {limit} bytes")
        if not pattern.fullmatch(text):
            complaints.append(what)
        return complaints

    return validate


_LABEL_TEXT: Final = (
    "must consist of lower case alphanumeric characters or '-', and start and end with an alphanumeric character"
)
_LABEL_1035_TEXT: Final = "must consist of lower case alphanumeric characters or '-', start with a letter and end with an alphanumeric character"
_SUBDOMAIN_TEXT: Final = (
    "must consist of lower case alphanumeric characters, '-' or '.', and start and end with an alphanumeric character"
)
_NAME_TEXT: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and start and end with an alphanumeric character"
)
_is_subdomain: Final = _pattern(_SUBDOMAIN, 253, _SUBDOMAIN_TEXT)


def _qualified_name(text: str) -> list[object]:
    prefix, slash, name = text.rpartition("/")
    complaints: list[object] = []
    if "/" in prefix:
        return [f"a qualified name must be a name with an optional prefix and '/', the name {_NAME_TEXT}"]
    if slash and not prefix:
        complaints.append("prefix part must be non-empty")
    elif slash:
        complaints += [f"prefix part {complaint}" for complaint in _is_subdomain(prefix)]
    if not name:
        complaints.append("name part must be non-empty")
    elif len(name) > 63:
        complaints.append("name part must be no more than 63 bytes")
    if not _NAME.fullmatch(name):
        complaints.append(f"name part {_NAME_TEXT}")
    return complaints


def _label_value(text: str) -> list[object]:
    complaints: list[object] = ["must be no more than 63 bytes"] if len(text) > 63 else []
    if text and not _NAME.fullmatch(text):
        complaints.append(f"a valid label must be an empty string or {_NAME_TEXT}")
    return complaints


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and text.isascii() and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _is_datetime(text: str) -> bool:
    day, t, time = text.lower().partition("t")
    match = _TIME.fullmatch(time)
    return (
        bool(t)
        and _is_date(day)
        and match is not None
        and int(match[1]) < 24
        and int(match[2]) < 60
        and int(match[3]) < 60
    )


def _test(test: Callable[[str], object], complaint: str) -> Validator:
    return lambda text: [] if test(text) else [complaint]


_VALIDATORS: Final[dict[str, Validator]] = {
    "dns1123Label": _pattern(_LABEL, 63, _LABEL_TEXT),
    "dns1123Subdomain": _is_subdomain,
    "dns1035Label": _pattern(_LABEL_1035, 63, _LABEL_1035_TEXT),
    "qualifiedName": _qualified_name,
    "dns1123LabelPrefix": _pattern(_LABEL, 63, _LABEL_TEXT, prefix=True),
    "dns1123SubdomainPrefix": _pattern(_SUBDOMAIN, 253, _SUBDOMAIN_TEXT, prefix=True),
    "dns1035LabelPrefix": _pattern(_LABEL_1035, 63, _LABEL_1035_TEXT, prefix=True),
    "labelValue": _label_value,
    "uri": _test(is_url, "invalid URI for request"),
    "uuid": _test(_UUID.fullmatch, "does not match the UUID format"),
    "byte": _test(_BASE64.fullmatch, "invalid base64"),
    "date": _test(_is_date, "invalid date"),
    "datetime": _test(_is_datetime, "invalid datetime"),
}


def _named(name: str) -> Optional:
    return Optional(Format(name)) if name in _VALIDATORS else NONE


def _validate(format_: Format, text: str) -> Optional:
    complaints = _VALIDATORS[format_.name](text)
    return Optional(complaints) if complaints else NONE


def _constant(name: str) -> Callable[[], Format]:
    return lambda: Format(name)


FORMATS.function("format.named", "string", "optional(format)", "format-named", _named)
FORMATS.member("validate", "format, string", "optional(list(string))", "format-validate", _validate)
for _name in _VALIDATORS:
    FORMATS.function(f"format.{_name}", "", "format", f"format.named.{_name}", _constant(_name))
