"""One snapshot as a file: `dump` writes it down, `load` makes a snapshot of it on which `decide` gives the same plan.

    {"format": "fairlead-snapshot", "version": 1, "at": 1790000000.0, "code": "0.1.0+engine.1f2e3d4c5b6a", "facts": {…}}

`at` is the time of the snapshot, unix seconds; `facts` are `form.Facts`. A file may be compressed with gzip; a large one must be.
"""

from __future__ import annotations

import gzip
from typing import NamedTuple

import msgspec

from fairlead.bounded import files, json_text, unpack
from fairlead.bounded.limits import UnreadableError
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.values import Fact, decoder, encode
from fairlead.history.facts import form
from fairlead.history.facts.changes import Watcher
from fairlead.history.facts.form import FactsError
from fairlead.history.facts.state import State

FORMAT = "fairlead-snapshot"
PACK_LEVEL = 1  # gigabytes


class _Head(Fact, frozen=True, kw_only=True):
    format: str = ""
    version: int = 0


class _Document(Fact, frozen=True, kw_only=True, omit_defaults=False):
    format: str = FORMAT
    version: int = form.VERSION
    at: float
    code: str = ""
    facts: form.Facts


_HEAD = msgspec.json.Decoder(_Head)
_DOCUMENT = decoder(_Document)


class Dumped(NamedTuple):
    snapshot: Snapshot
    now: float  # unix seconds


def dump(snapshot: Snapshot, now: float, *, code: str = "") -> bytes:
    """JSON. `code`: the version that wrote it, for people. Raises FactsError for two entries of one key."""
    return dump_facts(Watcher().note(snapshot).facts(), now, code=code)


def dump_facts(facts: form.Facts, now: float, *, code: str = "") -> bytes:
    return encode(_Document(at=now, code=code, facts=facts)) + b"\n"


def packed(data: bytes) -> bytes:
    """As it is stored: with gzip where it is longer than what is read of a file that is not compressed."""
    return gzip.compress(data, PACK_LEVEL, mtime=0) if len(data) > files.PLAIN_BYTES_MAX else data


def load(data: bytes) -> Dumped:
    """Raises FactsError, for what is no snapshot, of another version, cut, or without any ResourceSlice."""
    facts, now = load_facts(data)
    if not facts.slices:
        raise FactsError(
            "the snapshot has no ResourceSlices, so no gang could start: take it from a cluster on which a DRA driver publishes "
            "devices (`kubectl get resourceslices`), with a role that may list them"
        )
    state = State()
    state.apply(facts)
    return Dumped(state.snapshot(), now)


def load_facts(data: bytes) -> tuple[form.Facts, float]:
    """The facts, and their time. Raises FactsError."""
    try:
        text = unpack.whole(data)
        head = json_text.decode(text, _HEAD)
    except UnreadableError as error:
        raise FactsError(f"this is no snapshot of `fairlead snapshot`: {error}") from None
    except msgspec.DecodeError as error:
        raise FactsError(f"this is no snapshot of `fairlead snapshot`: {error}; it may be cut") from None
    if head.format != FORMAT:
        raise FactsError(
            f"format: {head.format!r}: this is no snapshot; `fairlead snapshot > FILE` writes one ({FORMAT!r})"
        )
    if head.version != form.VERSION:
        raise FactsError(
            f"version: {head.version}: this fairlead reads version {form.VERSION}; use the fairlead that wrote the snapshot"
        )
    try:
        document = json_text.decode(text, _DOCUMENT)
    except (msgspec.DecodeError, UnreadableError) as error:
        raise FactsError(f"a snapshot that cannot be read: {error}") from None
    return document.facts, document.at
