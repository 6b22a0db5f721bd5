"""`fairlead record --anonymise IN OUT`: a recording, or a snapshot, that may be given to others."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from fairlead.bounded import files
from fairlead.bounded.limits import UnreadableError
from fairlead.cli.printer import say
from fairlead.history.facts.form import FactsError
from fairlead.history.facts.snapshot_file import packed
from fairlead.history.recording.anonymise import anonymise, anonymise_snapshot
from fairlead.history.recording.records import RecordingError
from fairlead.history.recording.segment import SUFFIX

KEY_BYTES = 32
KEY_FILE_BYTES_MAX = 4096


def anonymous(source: Path, target: Path, key_file: Path | None) -> int:
    """The exit code."""
    try:
        key = secrets.token_bytes(KEY_BYTES) if key_file is None else files.read(key_file, bytes_max=KEY_FILE_BYTES_MAX)
        if not key:
            raise RecordingError(f"{key_file} is empty: a key is any secret bytes, such as `head -c 32 /dev/urandom`")
        if source.is_file() and not source.name.endswith(SUFFIX):
            data = packed(anonymise_snapshot(files.unpacked(source), key))
            with target.open("xb") as file:
                file.write(data)
            say(f"{target}: a snapshot without names", file=sys.stderr)
            return 0
        found = anonymise([source], target, key)
    except FileExistsError:
        say(f"{target} exists: name a new file", file=sys.stderr)
        return 2
    except (RecordingError, FactsError, UnreadableError, OSError) as error:
        say(error, file=sys.stderr)
        return 2
    say(f"{target}: {found.decisions} decisions, {found.names} names replaced", file=sys.stderr)
    if found.alike < found.decisions:
        say(
            f"{found.decisions - found.alike} of them are others than recorded, names aside: this version decides otherwise than the one "
            "that recorded, or an order ends in a name; `fairlead replay` of the original tells which",
            file=sys.stderr,
        )
    return 0
