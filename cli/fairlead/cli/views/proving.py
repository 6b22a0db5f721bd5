"""`fairlead explain --prove` and `fairlead verify`: of a live cluster with the user's rights, or of a snapshot's file.

Both read the same document: of a live cluster it is made at once, of a file it is what the file holds. A certificate is printed
only if it verifies; else the output says that nothing is proven.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fairlead.api import certificate as form
from fairlead.bounded import files, json_text
from fairlead.bounded.limits import UnreadableError
from fairlead.cli.printer import say
from fairlead.cli.views import printing, reading
from fairlead.cli.views.certificates import lines
from fairlead.engine.prove.prover import Prover
from fairlead.engine.snapshot import Snapshot
from fairlead.evidence import snapshot_file
from fairlead.evidence.document import Facts
from fairlead.history.facts.errors import FactsError
from fairlead.history.facts.snapshot_file import dump, load
from fairlead.ui.reading import live_snapshot
from fairlead.ui.reading.cluster import Cluster
from fairlead.ui.reading.errors import NotReadError
from fairlead.verify.check import RefusedError, check
from fairlead.verify.search import UnprovenError

NOT_PROVEN = 3  # exit status

_ANY = msgspec.json.Decoder()
_CERTIFICATE = msgspec.json.Decoder(form.Certificate)
BYTES_MAX = 64 * 2**20  # of a certificate


class Observed(NamedTuple):
    data: bytes  # of a snapshot's file
    live: bool


def prove(target: str, *, namespace: str, observed: Observed, output: str) -> int:
    """Print the certificate of a gang that waits."""
    kind, slash, name = target.rpartition("/")
    if slash and kind.rstrip("s") != "gang":
        say(f"{target}: only of gangs can be proven that they cannot start; write gang/NAME", file=sys.stderr)
        return 2
    facts, digest = _facts(observed)
    snapshot, now = _load(observed)
    prover = Prover(snapshot, now)
    gang_id = f"{namespace}/{name}"
    if all(waiting.id != gang_id for waiting in prover.plan.waiting):
        say(_not_waiting(gang_id, prover, snapshot), file=sys.stderr)
        return 1
    certificate = prover.certificate(gang_id, digest)
    try:
        check(certificate, facts)
    except (RefusedError, UnprovenError) as error:
        if not isinstance(certificate.because, form.NotProven):
            say(f"a proof was found that does not verify; please report it: {error}", file=sys.stderr)
        code = next(str(waiting.reason.code) for waiting in prover.plan.waiting if waiting.id == gang_id)
        certificate = msgspec.structs.replace(certificate, given=(), because=form.NotProven(code=code))
    if output == "table":
        _print(certificate)
    else:
        printing.structured(msgspec.to_builtins(certificate), output)
    return NOT_PROVEN if isinstance(certificate.because, form.NotProven) else 0


def verify(data: bytes, *, observed: Observed, output: str) -> int:
    """Print whether the certificate is true: 0 if so, 1 if it is refused, NOT_PROVEN where it proves nothing."""
    certificate, verdict, message = None, "verified", ""
    try:
        certificate = read(data)
        facts, digest = _facts(observed)
        if not observed.live and certificate.snapshot != digest:
            raise RefusedError(
                f"the certificate is of another snapshot ({certificate.snapshot}), not of this one ({digest}); name that one "
                "with --snapshot, or none to check it against a live cluster"
            )
        check(certificate, facts)
        verdict = "verified on its premises" if certificate.given else "verified"
    except RefusedError as error:
        verdict, message = "refused", str(error)
    except UnprovenError as error:
        verdict, message = "not proven", str(error)
    if output == "table":
        say(f"{verdict}: {message}" if message else verdict)
        if certificate is not None and not message:
            _print(certificate)
    else:
        gang = None if certificate is None else certificate.gang
        given = [] if certificate is None else [f"{each.gang} ({each.role})" for each in certificate.given]
        printing.structured({"verdict": verdict, "gang": gang, "premises": given, "message": message}, output)
    return {"refused": 1, "not proven": NOT_PROVEN}.get(verdict, 0)


def read(data: bytes) -> form.Certificate:
    """Raises RefusedError for what is no certificate of a known version."""
    try:
        head = json_text.decode(data, _ANY)
    except (msgspec.DecodeError, UnreadableError) as error:
        raise RefusedError(
            f"this is no certificate: {error}; it may be cut: `explain --prove -o json` writes one"
        ) from None
    version = head.get("version") if isinstance(head, dict) else None
    if version != form.VERSION:
        raise RefusedError(
            f"version: {version!r}: this fairlead reads certificates of version {form.VERSION}; use the one that wrote it"
        )
    try:
        return json_text.decode(data, _CERTIFICATE)
    except (msgspec.DecodeError, UnreadableError) as error:
        raise RefusedError(f"this is no certificate: {error}") from None


def observe(
    snapshot: Path | None, kubeconfig: Path | None, context: str | None, drivers: tuple[str, ...]
) -> tuple[int, Observed | None]:
    """Exit status, and what the file holds, or the cluster now; messages go to standard error."""
    if snapshot is not None:
        try:
            return 0, Observed(files.unpacked(snapshot), live=False)
        except UnreadableError as error:
            say(f"{snapshot}: {error}", file=sys.stderr)
            return 1, None
        except OSError as error:
            say(f"{snapshot}: {error.strerror}", file=sys.stderr)
            return 1, None

    async def now(cluster: Cluster) -> Observed:
        found, at = await live_snapshot.read(cluster.client, drivers)
        return Observed(dump(found, at), live=True)

    return reading.run(now, kubeconfig=kubeconfig, context=context)


def guarded(work: Any) -> int:
    """The exit status of `work()`; a snapshot that cannot be read is a message."""
    try:
        return int(work())
    except (snapshot_file.SnapshotError, FactsError, NotReadError) as error:
        say(error, file=sys.stderr)
        return 1


def _facts(observed: Observed) -> tuple[Facts, str]:
    return snapshot_file.read(observed.data)


def _load(observed: Observed) -> tuple[Snapshot, float]:
    loaded = load(observed.data)
    return loaded.snapshot, loaded.now


def _not_waiting(gang_id: str, prover: Prover, snapshot: Snapshot) -> str:
    if any(admission.id == gang_id for admission in prover.plan.admissions):
        return f"gang {gang_id} can start: this very decision admits it"
    if any(gang.id == gang_id for gang in snapshot.running):
        return f"gang {gang_id} runs already"
    waiting = ", ".join(waiting.id for waiting in prover.plan.waiting[:4]) or "none"
    return f"no gang {gang_id} waits; name one with -n NAMESPACE (waiting: {waiting})"


def _print(certificate: form.Certificate) -> None:
    headline, *rest = lines(certificate)
    printing.paragraph(headline, bold=True)
    for line in rest:
        printing.paragraph(line, indent=2)
