"""`fairlead import`: reads files, standard input or a cluster, prints what becomes of it. Writes to no cluster.

Exit status: 0 imported; 1 with `--strict`: imported, and something has no equal; 2 nothing was imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairlead.bounded import files
from fairlead.bounded.limits import BoundError
from fairlead.cli.imports import live, write
from fairlead.cli.imports.commands import Import
from fairlead.cli.imports.documents import Document, documents
from fairlead.cli.imports.model import Fault, Imported, RefusedError, Source, plain
from fairlead.cli.imports.systems import READERS
from fairlead.cli.printer import say
from fairlead.cli.views.reading import run as on_cluster

SUFFIXES = {".yaml", ".yml", ".json"}


def run(asked: Import) -> int:
    """Print the objects, the notes to standard error; returns the exit status."""
    found: list[Document] = []
    if asked.files:
        try:
            found = [each for path in asked.files for each in of_path(path)]
        except RefusedError as error:
            return _refused(error)
    else:
        status, read = on_cluster(
            lambda cluster: live.read(cluster, asked.system), kubeconfig=asked.kubeconfig, context=asked.context
        )
        if status or read is None:
            return 2
        found = read
    try:
        imported = READERS[asked.system](found)
    except RefusedError as error:
        return _refused(error)
    say(write.as_json(imported) if asked.output == "json" else write.as_yaml(imported, asked.system), end="")
    _say(imported)
    return int(asked.strict and imported.lost > 0)


def of_path(path: Path) -> list[Document]:
    """The documents of a file, of a directory's files in the order of their names, or of standard input (-)."""
    try:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
            if not inside:
                raise RefusedError(
                    [Fault(Source(plain(str(path))), "", "holds no .yaml, .yml or .json file: name files")]
                )
            return [document for each in inside for document in of_path(each)]
        return documents(files.read(path), "standard input" if str(path) == "-" else str(path))
    except OSError as error:
        text = f"cannot be read: {error.strerror or error}; name a file, a directory or - for standard input"
        raise RefusedError([Fault(Source(plain(str(path))), "", text)]) from None
    except BoundError as error:
        raise RefusedError([Fault(Source(plain(str(path))), "", str(error))]) from None


def _refused(error: RefusedError) -> int:
    for fault in error.faults:
        say(fault, file=sys.stderr)
    say(f"nothing is imported: {len(error.faults)} faults", file=sys.stderr)
    return 2


def _say(imported: Imported) -> None:
    for note in imported.notes:
        say(note, file=sys.stderr)
    counts = ((imported.queues, "Queues"), (imported.flavors, "Flavors"), (imported.policies, "TenancyPolicies"))
    written = ", ".join(f"{len(each)} {name}" for each, name in counts)
    say(f"{written}; {imported.lost} without an equal", file=sys.stderr)
