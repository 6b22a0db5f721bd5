"""The TLS context of the server: TLS 1.3 only, with a certificate that can be replaced while it serves."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from fairlead.webhook.certificates.authority import Material


def tls_context(material: Material) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    load(context, material)
    return context


def load(context: ssl.SSLContext, material: Material) -> None:
    """Serve material from the next handshake on; open connections go on. The key is on disk only while OpenSSL reads it."""
    with tempfile.TemporaryDirectory(prefix="fairlead-") as directory:
        path = Path(directory) / "pair.pem"
        path.touch(mode=0o600)
        path.write_text(material.server.key + material.server.certificate)
        context.load_cert_chain(path)
