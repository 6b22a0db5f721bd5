"""Records decisions, and compares those of today with a record: is every plan what it was, to the byte?

    python -m tests.support.decisions record FILE [--only full|quick|SOURCE|SOURCE/PREFIX]
    python -m tests.support.decisions compare FILE [--only …] [--dump CASE OUT]
    python -m tests.support.decisions list [--only …]

A record has a line per case: name, number of decisions, digest of what was decided, digest of the texts. `compare` tells
the two apart, so that a new wording is not mistaken for a new decision; either is a difference, and ends with exit code 1.
`--dump` writes every plan of one case as a line of JSON instead, to be compared with that of another checkout by `diff`.
What is not selected, or cannot be run because its data are not here, keeps its line in the file and is not compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.simulate import DEFAULT as TRACES
from fairlead.engine.types.plan import Plan
from fairlead.history.recording import canonical
from tests.support import decisions_sources as sources
from tests.support.decisions_recorder import Record, listening, record
from tests.support.decisions_sources import ROOT, Case, Data, selected

RECORD = Path(__file__).resolve().parent / "data" / "decisions.txt"
Records = dict[str, Record]
Tell = Callable[[str], object]


def read(file: Path) -> Records:
    """By case. Raises ValueError for a line that is no record."""
    found: Records = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        parts = line.split(" ")
        if len(parts) != 4 or not parts[1].isdecimal():
            raise ValueError(f"{file}: line {number}: {line!r} is not: case, count, digest, digest")
        found[parts[0]] = Record(int(parts[1]), parts[2], parts[3])
    return found


def write(file: Path, records: Records) -> None:
    """In order of names."""
    lines = [f"{name} {each.count} {each.decision} {each.texts}\n" for name, each in sorted(records.items())]
    file.write_text("".join(lines), encoding="utf-8")


def record_all(cases: Iterable[Case], tell: Tell) -> Records:
    found: Records = {}
    for case in cases:
        found[case.name] = record(case.run)
        tell(f"{case.name} {found[case.name].count}")
    return found


def difference(case: Case, known: Record | None) -> tuple[str | None, int]:
    """How the case's decisions differ from what is known of them, None where they do not; and how many there were."""
    try:
        now = record(case.run)
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}", 0
    if known is None:
        return "is not in the record", now.count
    if now == known:
        return None, now.count
    if now.count != known.count:
        return f"differs: {known.count} decisions were recorded", now.count
    return "differs" if now.decision != known.decision else "differs in its texts only", now.count


def compare_all(cases: Sequence[Case], known: Records, tell: Tell) -> list[str]:
    """The names of the cases that differ; tells of each case."""
    different: list[str] = []
    for case in cases:
        how, count = difference(case, known.get(case.name))
        tell(f"{'same' if how is None else how}: {case.name} ({count})")
        if how is not None:
            different.append(case.name)
    return different


def missing(cases: Sequence[Case], known: Records, only: str, absent: Sequence[str]) -> list[str]:
    """Names in the record of cases that should have been run and do not exist any more."""
    if only == "quick":
        return []
    names = {case.name for case in cases}
    start = "" if only == "full" else only if "/" in only else f"{only}/"
    run = {name for name in known if name.startswith(start) and name.partition("/")[0] not in absent}
    return sorted(run - names)


def dump(case: Case, out: Path) -> int:
    """Every plan as a line of JSON, the decision before the texts; returns how many there were."""
    count = 0
    with out.open("wb") as file:

        def note(plan: Plan) -> None:
            nonlocal count
            count += 1
            parts = canonical.encode(canonical.decision(plan)), canonical.encode(canonical.texts(plan))
            file.write(b'{"decision":%b,"texts":%b}\n' % parts)

        with listening(note):
            case.run()
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        cases, absent = selected(options.only, Data(options.vectors, options.traces))
    except KeyError:
        print(f"--only {options.only}: there are full, quick, {', '.join(sources.SOURCES)}", file=sys.stderr)
        return 2
    for name in absent:
        print(f"skipped: {name}: its data are not here")
    if options.command == "list":
        for case in cases:
            print(f"{case.name}{' (quick)' if case.quick else ''}")
        return 0
    if options.command == "record":
        return _record(options.file, cases, options.only, absent)
    if options.dump is not None:
        name, out = options.dump
        chosen = [case for case in cases if case.name == name]
        if not chosen:
            print(f"--dump {name}: there is no such case; `list` names all", file=sys.stderr)
            return 2
        print(f"{out}: {dump(chosen[0], Path(out))} decisions of {name}")
        return 0
    return _compare(options.file, cases, options.only, absent)


def _record(file: Path, cases: Sequence[Case], only: str, absent: Sequence[str]) -> int:
    began = time.monotonic()
    fresh = record_all(cases, print)
    known = read(file) if file.exists() else {}
    gone = missing(cases, known, only, absent)
    write(file, {name: each for name, each in known.items() if name not in gone} | fresh)
    print(_summary(sum(each.count for each in fresh.values()), len(fresh), began))
    return 0


def _compare(file: Path, cases: Sequence[Case], only: str, absent: Sequence[str]) -> int:
    began = time.monotonic()
    known = read(file)
    different = compare_all(cases, known, print)
    gone = missing(cases, known, only, absent)
    for name in gone:
        print(f"is only in the record: {name}")
    print(_summary(sum(known[case.name].count for case in cases if case.name in known), len(cases), began))
    if different or gone:
        print(f"{len(different) + len(gone)} cases differ: {', '.join([*different, *gone][:10])}")
    return 1 if different or gone else 0


def _summary(decisions: int, cases: int, began: float) -> str:
    return f"{decisions} decisions in {cases} cases, {time.monotonic() - began:.0f} s"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.decisions")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("record", "write"), ("compare", "compare with"), ("list", "name the cases of")):
        command = commands.add_parser(name, help=f"{what} a record")
        if name != "list":
            command.add_argument("file", type=Path)
        command.add_argument("--only", default="full", help="full, quick, a source, or the beginning of names")
        command.add_argument(
            "--vectors", type=Path, default=ROOT.parent / "shared" / "vectors", help="recorded answers"
        )
        command.add_argument("--traces", type=Path, default=TRACES, help="the recorded placement trace")
        if name == "compare":
            command.add_argument("--dump", nargs=2, metavar=("CASE", "OUT"), help="write one case's plans instead")
    return parser


if __name__ == "__main__":
    sys.exit(main())
