"""`fairlead replay`: decides again, and shows the first decision that differs: its inputs, and both plans side by side."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairlead.cli import printer
from fairlead.cli.printer import say
from fairlead.engine.types.values import plain
from fairlead.history.code_version import code_version
from fairlead.history.facts import form
from fairlead.history.facts.form import FactsError
from fairlead.history.facts.snapshot_file import dump as dump_snapshot
from fairlead.history.recording.compact import lines, moment, side_by_side
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.records import RecordingError
from fairlead.history.recording.verify import Counts, Difference, differences

Json = dict[str, Any]
COLUMN = 72  # characters of one plan, into a pipe
KEYS_SHOWN = 8
LISTED_MAX = 200  # decisions that `--all` names in the table


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Decide recorded decisions again and compare them bit by bit.

    Exit code 0: all are the same. 1: one differs. 2: the recording cannot be read.
    """

    recordings: Annotated[
        tuple[Path, ...],
        typer.Argument(metavar="FILE|DIR…", help="Segments, or the directory of `controller --record`."),
    ]
    every: Annotated[bool, typer.Option("--all", help="Name every decision that differs, not the first alone.")] = False
    afresh: Annotated[
        bool, typer.Option("--afresh", help="Forget between decisions what the engine remembers of the last.")
    ] = False
    dump: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the inputs of the first decision that differs as a snapshot."),
    ] = None
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="A table for people; json for programs.")
    ] = "table"

    def run(self) -> int:
        try:
            return self._compare()
        except (RecordingError, FactsError, OSError) as error:
            say(error, file=sys.stderr)
            return 2

    def _compare(self) -> int:
        """The exit code. Raises RecordingError, OSError."""
        reader, counts = Reader(self.recordings), Counts()
        first: Json | None = None
        others: list[Json] = []
        for found in differences(reader, counts, afresh=self.afresh):
            if first is None:
                first = _shown(found)
                if self.dump is not None:
                    self.dump.write_bytes(dump_snapshot(found.state.snapshot(), found.at, code=code_version()))
            else:
                others.append({"decision": found.number, "at": moment(found.at)})
            if not self.every:
                break
        summary = _summary(reader, counts, first, others)
        if self.output == "json":
            printer.structured(summary, "json")
        else:
            _print(summary, every=self.every)
        return 0 if first is None else 1


def _shown(found: Difference) -> Json:
    snapshot = found.state.snapshot()
    changed: Any = plain(found.facts)
    return {
        "decision": found.number,
        "at": moment(found.at),
        "where": found.where,
        "inputs": {
            "changed": changed,
            "gangs": [gang.id for gang in snapshot.gangs],
            "running": [gang.id for gang in snapshot.running],
            "queues": [queue.name for queue in snapshot.queues],
            "nodes": len(snapshot.nodes),
        },
        "recorded": found.recorded,
        "now": found.now,
    }


def _summary(reader: Reader, counts: Counts, first: Json | None, others: list[Json]) -> Json:
    return {
        "decisions": counts.decisions,
        "from": None if counts.first_at is None else moment(counts.first_at),
        "to": None if counts.last_at is None else moment(counts.last_at),
        "recordedBy": sorted({header.code for header in reader.headers}),
        "decidedBy": code_version(),
        "missed": counts.missed,
        "torn": reader.torn,
        "first": first,
        "others": others,
    }


def _print(summary: Json, *, every: bool) -> None:
    span = f" from {summary['from']} to {summary['to']}" if summary["decisions"] else ""
    count, first = summary["decisions"], summary["first"]
    recorded = ", ".join(summary["recordedBy"]) or "an unknown version"
    if first is None:
        say(f"{count} decisions{span} decided again: all the same, bit by bit")
    else:
        told = f"{1 + len(summary['others'])} of {count} decisions" if every else f"decision {first['decision']}"
        say(f"{told}{span} {'differ' if every else 'differs'}")
    say(f"recorded by {recorded}, decided again by {summary['decidedBy']}")
    if summary["missed"]:
        say(f"{summary['missed']} decisions were made and not recorded (gaps)")
    if summary["torn"]:
        say(f"note: {summary['torn']}")
    if first is not None:
        _print_difference(first)
    for other in summary["others"][:LISTED_MAX]:
        say(f"also decision {other['decision']} at {other['at']}")
    if len(summary["others"]) > LISTED_MAX:
        say(f"and {len(summary['others']) - LISTED_MAX} more; -o json has them all")


def _print_difference(first: Json) -> None:
    say(f"\nfirst: decision {first['decision']} at {first['at']} ({first['where']})")
    inputs = first["inputs"]
    say(f"inputs: {len(inputs['gangs'])} gangs wait, {len(inputs['running'])} hold devices, {inputs['nodes']} nodes")
    for table, entries in inputs["changed"].items():
        say(f"  changed {table}: {_keys(entries)}")
    rows = side_by_side(lines(first["recorded"]), lines(first["now"]))
    if all(mark != "≠" for mark, _, _ in rows):
        say("\nThe plans are alike in what is recorded whole; they differ in facts or sentences of gangs that wait.")
        return
    wide = ((printer.width() or 2 * COLUMN + 7) - 7) // 2
    say(f"\n    {'recorded':<{wide}}   now")
    for mark, one, other in rows:
        left, right = textwrap.wrap(one, wide) or [""], textwrap.wrap(other, wide) or [""]
        for place in range(max(len(left), len(right))):
            cells = [side[place] if place < len(side) else "" for side in (left, right)]
            say(f"{mark if place == 0 else ' '}   {cells[0]:<{wide}}   {cells[1]}".rstrip())


def _keys(entries: Any) -> str:
    if not isinstance(entries, dict) or entries.keys() <= set(form.Settings.__struct_encode_fields__):
        return "other values"
    names = [name if value is not None else f"{name} (gone)" for name, value in entries.items()]
    more = f" and {len(names) - KEYS_SHOWN} more" if len(names) > KEYS_SHOWN else ""
    return ", ".join(names[:KEYS_SHOWN]) + more
