"""`traceparent` of W3C Trace Context, read from and written into annotations, and the identity of a gang's trace.

Every program that sees a gang's pods computes the same trace: its id is a hash of the gang's namespace, name and owner, and the id of its first
span a hash of the trace's. So programs need not ask one another, and a trace that Fairlead began is told from one that a user named
in an annotation by that second hash. A tenant may write anything there: what is no traceparent counts as absent. Pure.
Source: https://www.w3.org/TR/trace-context/ (version 00; what it says of later versions in 2.2.2 and 4.3).
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fairlead.api import names

SHOWN_MAX: Final = 60
"""Characters of a wrong value that a message repeats."""
_VERSION_00_CHARS: Final = 55
_FIELDS: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
_SAMPLED: Final = 0x01
_HALF_BITS: Final = 64


class TraceContextError(ValueError):
    """A text that is no traceparent."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span and its trace; neither id is 0."""

    trace_id: int  # 128 bits
    span_id: int  # 64 bits
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"

    @property
    def begun_here(self) -> bool:
        """Whether the trace is one that `begin` made: then this is the span of the gang itself, and has no parent."""
        return self.span_id == _first_span(self.trace_id)

    def span(self, *of: str) -> "TraceContext":
        """Another span of the trace: the same one for the same texts."""
        return TraceContext(self.trace_id, span_id(f"{self.trace_id:x}", f"{self.span_id:x}", *of), self.sampled)


def begin(*of: str, ratio: float) -> TraceContext:
    """The context of a trace that these texts identify. `ratio` of all traces, from 0 to 1, are sampled; which, their ids say."""
    trace_id = _hashed(("trace", *of), 16)
    bits = trace_id & ((1 << _HALF_BITS) - 1)  # as OpenTelemetry's TraceIdRatioBased does
    return TraceContext(trace_id, _first_span(trace_id), bits < round(ratio * (1 << _HALF_BITS)))


def parse(text: str) -> TraceContext:
    """The context of a traceparent. Raises TraceContextError.

    Of a later version only the four fields that version 00 has are read, as the specification asks for.
    """
    found = _FIELDS.match(text)
    if found is None:
        raise TraceContextError(_wrong(text, "write 00-, 32 and 16 hex digits in lower case, and flags, as 00-…-…-01"))
    version, trace_id, parent, flags = found.groups()
    if version == "ff":
        raise TraceContextError(_wrong(text, "there is no version ff"))
    rest = text[_VERSION_00_CHARS:]
    if rest and (version == "00" or not rest.startswith("-")):
        raise TraceContextError(_wrong(text, f"version {version} ends after its flags"))
    if not int(trace_id, 16) or not int(parent, 16):
        raise TraceContextError(_wrong(text, "the ids of trace and span may not be 0"))
    return TraceContext(int(trace_id, 16), int(parent, 16), bool(int(flags, 16) & _SAMPLED))


def of(annotations: Mapping[str, str]) -> TraceContext | None:
    """The context in an object's annotations; None where there is none, or no traceparent."""
    text = annotations.get(names.TRACEPARENT)
    if text is None:
        return None
    try:
        return parse(text)
    except TraceContextError:
        return None


def span_id(*of: str) -> int:
    """An id that these texts identify."""
    return _hashed(("span", *of), 8)


def _first_span(trace_id: int) -> int:
    return span_id(f"{trace_id:x}")


def _hashed(texts: tuple[str, ...], size: int) -> int:
    """Each text with its length before it, so that no two lists run together."""
    digest = hashlib.blake2b(digest_size=size, person=b"fairlead")
    for text in texts:
        raw = text.encode(errors="surrogatepass")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return int.from_bytes(digest.digest(), "big") or 1


def _wrong(text: str, why: str) -> str:
    shown = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
    return f"{shown!r} is no traceparent of W3C Trace Context: {why}"
