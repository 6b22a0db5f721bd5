"""The TLS context of the server: TLS 1.3 only, with a certificate that can be replaced while it serves.

OpenSSL reads certificate and key from a file, and the webhook has no directory to write to: its root is read-only and it
mounts no volume. So the file is in memory (memfd), reached by its descriptor, and the key never touches a disk.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator

from fairlead.webhook.certificates.authority import Material


def tls_context(material: Material) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # apiservers resume no sessions, and a ticket costs every handshake time and bytes
    load(context, material)
    return context


def load(context: ssl.SSLContext, material: Material) -> None:
    """Serve material from the next handshake on; open connections go on."""
    with _readable((material.server.key + material.server.certificate).encode()) as path:
        context.load_cert_chain(path)


@contextlib.contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A path that this process can read the content from inside the block."""
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("fairlead-certificate"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:  # a developer's machine: a file that only its owner may read
        with tempfile.NamedTemporaryFile(prefix="fairlead-") as file:
            file.write(content)
            file.flush()
            yield file.name
