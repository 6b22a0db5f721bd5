"""The verdict on one review: allowed or denied, with reason, patch, warnings and audit annotations.

Every handler returns one. `cause` is a short word for metrics, from a closed set: never a name or a value of the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.api.trace_context import TraceContext

Operation = dict[str, Any]

FAULTS_MAX = 50
FAULT_CHARS_MAX = 2_000
"""Of one denial's message: what a user reads, and what a log line holds."""
WARNING_CHARS_MAX = 256
WARNINGS_CHARS_MAX = 4096
"""Of the apiserver: it cuts a longer warning, and drops what exceeds the total."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One broken rule of one TenancyPolicy: `rule` is the policy's field, `mode` what follows: Enforce, Warn or Audit."""

    policy: str
    rule: str
    mode: str
    text: str

    @property
    def message(self) -> str:
        return f"TenancyPolicy {self.policy} ({self.rule}): {self.text}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    allowed: bool = True
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    message: str = ""
    code: int = 200
    cause: str = "ok"
    audit: dict[str, str] = {}
    findings: tuple[Finding, ...] = ()
    """Every policy rule that the object breaks, in any mode; for metrics."""
    gang: str = ""
    """Of a pod that is gated, or denied by policies: the gang that it names."""
    trace: TraceContext | None = None
    """The same pod's, with traces on: that of its annotation."""

    def with_warnings(self, warnings: Iterable[str]) -> Verdict:
        """The same with more warnings, each once, in order."""
        return replace(self, warnings=tuple(dict.fromkeys((*self.warnings, *warnings))))


def allow(cause: str = "ok", *, warnings: Sequence[str] = (), patch: Sequence[Operation] = ()) -> Verdict:
    return Verdict(cause=cause, warnings=tuple(warnings), patch=tuple(patch))


def deny(cause: str, *faults: str, code: int = 403, warnings: Sequence[str] = ()) -> Verdict:
    """A denial, one line per fault; each fault names object, field, value and next step."""
    lines = [fault if len(fault) <= FAULT_CHARS_MAX else f"{fault[:FAULT_CHARS_MAX]}…" for fault in faults[:FAULTS_MAX]]
    if len(faults) > FAULTS_MAX:
        lines.append(f"and {len(faults) - FAULTS_MAX} more")
    return Verdict(allowed=False, cause=cause, message="\n".join(lines), code=code, warnings=tuple(warnings))


UNTOUCHED = Verdict(cause="unmanaged")
"""Allowed without a change: the object is not managed."""
