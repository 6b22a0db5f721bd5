"""A certificate in a directory, renewed by another program: cert-manager's Secret as a volume."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlead.webhook.certificates.authority import CertificateError, Material, Pair
from fairlead.webhook.certificates.soundness import mounted_fault

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MountedCertificate:
    """tls.crt, tls.key and perhaps ca.crt in a directory.

    Without ca.crt the bundle is empty: the other program then writes the caBundle of the webhook configurations, too.
    """

    directory: Path
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    async def material(self) -> Material:
        """What the files hold now. Raises CertificateError where they cannot be served, such as halfway through a change."""
        try:
            certificate, key = ((self.directory / name).read_text() for name in ("tls.crt", "tls.key"))
            authority = self.directory / "ca.crt"
            bundle = authority.read_text() if authority.exists() else ""
        except (OSError, ValueError) as error:
            raise CertificateError(f"{self.directory}: tls.crt and tls.key cannot be served: {error}") from None
        material = Material(authorities=(Pair(bundle, ""),) if bundle else (), server=Pair(certificate, key))
        found = mounted_fault(material, self.now())
        if found is not None:
            raise CertificateError(f"{self.directory}: {found}")
        log.debug("%s: valid until %s", self.directory, material.server.ends.isoformat())
        return material
