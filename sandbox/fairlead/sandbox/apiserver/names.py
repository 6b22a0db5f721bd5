"""Which strings may be names: DNS labels and subdomains, qualified names, label values; with the real apiserver's texts.

Each function returns complaints, none for a valid name.
Source: k8s.io/apimachinery/pkg/util/validation/validation.go (1.36).
"""

from __future__ import annotations

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_LABEL_RE = re.compile(_LABEL)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN)
_LABEL_1035_RE = re.compile(_LABEL_1035)
_QUALIFIED_RE = re.compile(_QUALIFIED)
_PATH_FORBIDDEN = ("/", "%")


def _regex_complaint(what: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{one}', " for one in examples)
    return f"{what} (e.g. {shown}regex used for validation is '{pattern}')"


SUBDOMAIN_COMPLAINT = _regex_complaint(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
LABEL_COMPLAINT = _regex_complaint(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
LABEL_1035_COMPLAINT = _regex_complaint(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_QUALIFIED_COMPLAINT = _regex_complaint(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_LABEL_VALUE_COMPLAINT = _regex_complaint(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character",
    f"({_QUALIFIED})?",
    "MyValue",
    "my_value",
    "12345",
)


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def _prefix(name: str, *, prefix: bool) -> str:
    """A generateName may end in '-': it is checked as if one more character followed."""
    return name[:-1] + "a" if prefix and len(name) > 1 and name.endswith("-") else name


def _complaints(name: str, form: re.Pattern[str], complaint: str, limit_bytes: int, *, prefix: bool) -> list[str]:
    name = _prefix(name, prefix=prefix)
    found = [_too_long(limit_bytes)] if len(name.encode()) > limit_bytes else []
    return found if form.fullmatch(name) else [*found, complaint]


def subdomain_complaints(name: str, *, prefix: bool = False) -> list[str]:
    return _complaints(name, _SUBDOMAIN_RE, SUBDOMAIN_COMPLAINT, 253, prefix=prefix)


def label_complaints(name: str, *, prefix: bool = False) -> list[str]:
    return _complaints(name, _LABEL_RE, LABEL_COMPLAINT, 63, prefix=prefix)


def label_1035_complaints(name: str, *, prefix: bool = False) -> list[str]:
    return _complaints(name, _LABEL_1035_RE, LABEL_1035_COMPLAINT, 63, prefix=prefix)


def path_segment_complaints(name: str, *, prefix: bool = False) -> list[str]:
    """RBAC names and the like: anything that can stand in a URL path."""
    if not prefix and name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{char}'" for char in _PATH_FORBIDDEN if char in name]


def qualified_name_complaints(name: str) -> list[str]:
    """Label and annotation keys, finalizers: `[prefix/]name`."""
    parts = name.split("/")
    out: list[str] = []
    if len(parts) == 1:
        base = parts[0]
    elif len(parts) == 2:
        prefix, base = parts
        if not prefix:
            out.append("prefix part must be non-empty")
        else:
            out += [f"prefix part {one}" for one in subdomain_complaints(prefix)]
    else:
        return [
            "a qualified name "
            + _QUALIFIED_COMPLAINT
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if not base:
        out.append("name part must be non-empty")
    elif len(base.encode()) > 63:
        out.append("name part " + _too_long(63))
    if not _QUALIFIED_RE.fullmatch(base):
        out.append("name part " + _QUALIFIED_COMPLAINT)
    return out


def label_value_complaints(value: str) -> list[str]:
    out = []
    if len(value.encode()) > 63:
        out.append(_too_long(63))
    if value and not _QUALIFIED_RE.fullmatch(value):
        out.append(_LABEL_VALUE_COMPLAINT)
    return out
