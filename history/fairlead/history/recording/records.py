"""The records of a segment, version 1: one line of JSON each, in a chain of digests.

    {"chain": "<32 hexadecimal>", "record": {"kind": "header" | "part" | "decision" | "gap" | "end", …}}

`chain` is the beginning of sha256(chain of the record before + the record's bytes); the first record of a segment goes on from the
last of the segment before, which its header names. So what is edited, cut out or reordered is found, by accident or by hand; who
rewrites every digest from there on is not: keep the last one, which is logged, elsewhere.
The first decision of a segment has the facts of its whole state, each other one what changed since the one before. Facts that are more
than a megabyte or so are in parts before their decision, which has the rest.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from fairlead.bounded import json_text
from fairlead.bounded.limits import BoundError
from fairlead.engine.types.values import Fact, decoder, encode
from fairlead.history.facts import form

T = TypeVar("T")
FORMAT = "fairlead-recording"
VERSION = 1
CHAIN_START = "0" * 32


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind"):
    """The base of all."""


class Previous(Fact, frozen=True, kw_only=True):
    """The segment before, as its writer, or the next one, found it."""

    segment: int
    chain: str


class Header(Record, frozen=True, kw_only=True, tag="header"):
    format: str = ""
    version: int = 0
    segment: int = 0  # from 1
    started: float = 0.0  # unix seconds
    code: str = ""
    writer: str = ""  # the leader's identity
    previous: Previous | None = None
    anonymised: bool = False


class Decision(Record, frozen=True, kw_only=True, tag="decision"):
    """`plan` is compact (see `compact`); None: the plan before once more. `digest` is that of the whole plan."""

    number: int  # from 1 in a recording; goes on from segment to segment
    at: float  # unix seconds: the decision's `now`
    digest: str
    took_s: float = 0.0
    whole: bool = False
    facts: form.Facts = form.EMPTY
    plan: dict[str, Any] | None = None


class Part(Record, frozen=True, kw_only=True, tag="part"):
    """Entries of tables that belong to the facts of the next decision. Without one behind them they count for nothing."""

    facts: form.Facts


class Gap(Record, frozen=True, kw_only=True, tag="gap"):
    """Decisions that were made and not recorded. The next decision has its whole state."""

    at: float
    decisions: int
    reason: str


class End(Record, frozen=True, kw_only=True, tag="end"):
    """The last record of a segment that was closed."""

    at: float
    reason: str  # "full", "old", "stopped", or what the next writer found


AnyRecord = Header | Part | Decision | Gap | End
_DECODER: msgspec.json.Decoder[AnyRecord] = decoder(AnyRecord)


class BriefPart(Record, frozen=True, kw_only=True, tag="part"):
    """A part whose facts are not read."""


class BriefDecision(Record, frozen=True, kw_only=True, tag="decision"):
    """A decision of which only this is read."""

    number: int


BriefRecord = Header | BriefPart | BriefDecision | Gap | End
_BRIEF: msgspec.json.Decoder[BriefRecord] = msgspec.json.Decoder(BriefRecord)


class Line(msgspec.Struct, frozen=True):
    chain: str
    record: msgspec.Raw


_LINES = msgspec.json.Decoder(Line)


def link(chain: str, record: bytes) -> str:
    return sha256(chain.encode() + record).hexdigest()[:32]


def line(chain: str, record: AnyRecord) -> tuple[str, bytes]:
    """The record's place in the chain, and its line."""
    body = encode(record)
    after = link(chain, body)
    return after, b'{"chain":"%b","record":%b}\n' % (after.encode(), body)


def parse_line(text: bytes) -> Line:
    """Raises msgspec.DecodeError; BoundError for one that was made to take much memory, or is nested too deeply."""
    return json_text.decode(text, _LINES)


def parse_record(found: Line, where: str) -> AnyRecord:
    """Raises RecordingError."""
    return _parsed(_DECODER, found, where)


def parse_brief(found: Line, where: str) -> BriefRecord:
    """Without facts and plans, which may be large. Raises RecordingError."""
    return _parsed(_BRIEF, found, where)


def _parsed(decoder: msgspec.json.Decoder[T], found: Line, where: str) -> T:
    try:
        return json_text.decode(found.record, decoder)
    except (msgspec.DecodeError, BoundError) as error:
        raise RecordingError(
            f"{where}: a record that cannot be read: {error}; it was edited, or written by another version"
        ) from None


class RecordingError(Exception):
    """Names the file, the record, what it holds, and what to do."""


class LockedError(RecordingError):
    """Another process writes into the directory."""


class EmptySegmentError(RecordingError):
    """Not one record of it was written before its writer ended."""
