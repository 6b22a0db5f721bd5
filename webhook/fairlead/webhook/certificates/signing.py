"""The key that signs annotations (`fairlead.api.claim_sources`), derived from the private key that is served.

So every replica has it without a Secret of its own, and it changes when the private key does. Replicas that serve different
private keys (a directory each, `--certificate-from`) refuse each other's annotations.
"""

from __future__ import annotations

import hashlib
import hmac

from fairlead.api import names
from fairlead.webhook.certificates.authority import Material


def signing_key(material: Material) -> bytes:
    """32 bytes, from which the private key cannot be computed."""
    return hmac.new(names.CLAIM_SOURCES.encode(), material.server.key.strip().encode(), hashlib.sha256).digest()
