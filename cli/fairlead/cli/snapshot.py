"""`fairlead snapshot`, and `fairlead record --anonymise`: what a decision would start from, as a file; and a file that may be given to others.

A snapshot is read with the user's own rights, through the controller's caches.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from fairlead.bounded import files
from fairlead.bounded.limits import UnreadableError
from fairlead.cli.printer import say
from fairlead.cli.reading import OfCluster
from fairlead.controller.rehearsal import Unread, observe
from fairlead.history.code_version import code_version
from fairlead.history.facts.form import FactsError
from fairlead.history.facts.snapshot_file import dump, packed
from fairlead.history.recording.anonymise import anonymise, anonymise_snapshot
from fairlead.history.recording.records import RecordingError
from fairlead.history.recording.segment import SUFFIX
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.credentials import CredentialsError
from fairlead.kube.flags import DRIVERS, ManagedDrivers, SharedClaimDrivers
from fairlead.ui.reading.cluster import NotReadError, not_read

KEY_BYTES = 32
KEY_FILE_BYTES_MAX = 4096


@dataclass(frozen=True, kw_only=True)
class Snapshot(OfCluster):
    """Write what a decision would start from now, for support and for what-if: `fairlead snapshot > FILE`. Reads only."""

    managed_drivers: ManagedDrivers = DRIVERS
    shared_claim_drivers: SharedClaimDrivers = ()

    def run(self) -> int:
        if sys.stdout.isatty():
            say("fairlead snapshot writes megabytes: send them to a file, fairlead snapshot > FILE", file=sys.stderr)
            return 2
        try:
            data = asyncio.run(_read(self))
        except (NotReadError, CredentialsError, OSError, errors.ApiError) as error:
            say(f"no snapshot: {error}", file=sys.stderr)
            return 1
        sys.stdout.buffer.write(data)
        say(
            "the snapshot has names of namespaces, pods, nodes and queues; `fairlead record --anonymise` replaces them",
            file=sys.stderr,
        )
        return 0


async def _read(asked: Snapshot) -> bytes:
    async with Client.connect(asked.kubeconfig, context=asked.context, user_agent="fairlead-cli") as client:
        try:
            snapshot, now = await observe(client, asked.managed_drivers, asked.shared_claim_drivers)
        except Unread as error:
            raise not_read(error.error, "list", error.resource, None) from error
    if not list(snapshot.inventory.slice_names()):
        raise NotReadError(
            "the cluster has no ResourceSlices (`kubectl get resourceslices`): no DRA driver publishes devices, so there is nothing "
            "to decide on; see docs/install.md"
        )
    return packed(dump(snapshot, now, code=code_version()))


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
