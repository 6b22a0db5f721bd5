"""The annotation that says where a pod's named claims come from, written by the webhook and read by the controller.

The webhook replaces `resourceClaimTemplateName: one-gpu` in a controller-owned pod by `resourceClaimName: <fresh name>`. So the
claim controller makes no claim for the entry; the controller makes it, of that name, from the source that is recorded here:

    fairlead.dev/claim-sources: '{"claims":{"gpu":{"claim":"train-gpu-7bq…","template":"one-gpu","uid":"6b0…"}},"hmac":"…"}'

`uid` is the template's; a template of that name with another UID is not the one that was judged. A legacy limit has no template
object: `"request":"fairlead-gpu-2"` is the whole request, encoded as in `legacy`. The HMAC tells the webhook's own annotation,
met again in a second pass over the pod, from one that a user wrote: it covers namespace, owner and claims, as they are written. So a
webhook of this version knows the annotation of a later one, whose claims may have more fields, and both read the fields above.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.api import legacy, names
from fairlead.api.object_names import is_dns_label, is_dns_subdomain

CLAIM_NAME_MAX = 63
RANDOM_CHARS = 11
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Of generated names, as Kubernetes has it: no vowels, and no characters that are easily confused."""
VALUE_CHARS_MAX = 65_536
REMEMBERED_CHARS_MAX = 1_024
HMAC_CHARS = 32
_WHERE = f"metadata.annotations[{names.CLAIM_SOURCES}]"
_encode = msgspec.json.Encoder(order="sorted").encode


class ClaimSourcesError(ValueError):
    """The annotation cannot be read; the message names it and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSource:
    """One entry of spec.resourceClaims. `uid` is the template's, "" for a legacy limit, whose `template` encodes the request."""

    claim: str
    template: str
    uid: str = ""

    @property
    def is_legacy(self) -> bool:
        return not self.uid

    def to_json(self) -> dict[str, str]:
        if self.is_legacy:
            return {"claim": self.claim, "request": self.template}
        return {"claim": self.claim, "template": self.template, "uid": self.uid}


Sources = Mapping[str, ClaimSource]
"""By the name of the entry in spec.resourceClaims."""


def read(annotations: Mapping[str, str]) -> dict[str, ClaimSource]:
    """The sources that a pod's annotations record; {} without the annotation. Raises ClaimSourcesError."""
    value = annotations.get(names.CLAIM_SOURCES)
    if value is None:
        return {}
    return dict(_sources(value) if len(value) <= REMEMBERED_CHARS_MAX else _of(_parse(value)[0]))


@functools.lru_cache(maxsize=4096)
def _sources(value: str) -> dict[str, ClaimSource]:
    """The controller reads each pod's annotation several times, within a second or two."""
    return _of(_parse(value)[0])


def annotation(sources: Sources, *, namespace: str, owner_uid: str, key: bytes) -> str:
    """The annotation's value, with the HMAC of `key` (any length, shared by all replicas of the webhook)."""
    claims = {entry: source.to_json() for entry, source in sources.items()}
    mac = _hmac(claims, namespace=namespace, owner_uid=owner_uid, key=key)
    return _encode({"claims": claims, "hmac": mac}).decode()


def is_genuine(annotations: Mapping[str, str], *, namespace: str, owner_uid: str, key: bytes) -> bool:
    """Whether a webhook with this key wrote the annotation for a pod of this owner. Raises ClaimSourcesError."""
    claims, mac = _parse(annotations[names.CLAIM_SOURCES])
    _of(claims)
    return hmac.compare_digest(mac, _hmac(claims, namespace=namespace, owner_uid=owner_uid, key=key))


def claim_name(pod_base: str, entry: str, seed: str) -> str:
    """`<pod base>-<entry>-<rand11>`, at most 63 characters.

    `pod_base` is generateName or name ("" where a pod has neither); `seed` must be fresh for each pod, and hard to guess.
    """
    digest = int.from_bytes(hashlib.sha256(f"{seed}/{entry}".encode()).digest()) % len(ALPHABET) ** RANDOM_CHARS
    random = ""
    for _ in range(RANDOM_CHARS):
        digest, at = divmod(digest, len(ALPHABET))
        random += ALPHABET[at]
    base, room = pod_base.rstrip("-."), CLAIM_NAME_MAX - RANDOM_CHARS - 1
    if len(base) + 1 + len(entry) > room:
        keep = room - 1
        total = len(base) + len(entry)
        base, entry = base[: len(base) * keep // total], entry[: len(entry) * keep // total]
    parts = [part for part in (base.rstrip("-."), entry.rstrip("-."), random) if part]
    return "-".join(parts)


def _hmac(claims: Mapping[str, Any], *, namespace: str, owner_uid: str, key: bytes) -> str:
    text = _encode([namespace, owner_uid, claims])
    return hmac.digest(key, text, "sha256").hex()[:HMAC_CHARS]


def _parse(value: str) -> tuple[dict[str, Any], str]:
    """The claims as they are written, and the HMAC. Raises ClaimSourcesError."""
    if len(value) > VALUE_CHARS_MAX:
        raise ClaimSourcesError(f"{_WHERE}: longer than {VALUE_CHARS_MAX} characters")
    try:
        document = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        raise ClaimSourcesError(f"{_WHERE}: not JSON: {value[:80]!r}") from None
    claims, mac = (document.get("claims"), document.get("hmac")) if isinstance(document, dict) else (None, None)
    if not isinstance(claims, dict) or not isinstance(mac, str) or not mac.isascii():
        raise ClaimSourcesError(f"{_WHERE}: expected an object with claims and hmac: {value[:80]!r}")
    return claims, mac


def _of(claims: Mapping[str, Any]) -> dict[str, ClaimSource]:
    return {entry: _source(entry, raw, f"{_WHERE}: claims[{entry}]") for entry, raw in claims.items()}


def _source(entry: str, raw: Any, where: str) -> ClaimSource:
    """The source with the fields that are known; others, of a later version, are passed over."""
    known: list[Any] = (
        [raw.get(key, "") for key in ("claim", "template", "uid", "request")] if isinstance(raw, dict) else []
    )
    if not known or not all(isinstance(value, str) for value in known):
        raise ClaimSourcesError(f"{where}: expected an object with texts as claim, template, uid and request")
    claim, template, uid, request = known
    if not is_dns_label(entry) or not is_dns_subdomain(claim):
        raise ClaimSourcesError(f"{where}: {claim!r} is no name of a claim")
    if request and legacy.parse_template_name(request) is not None and not template:
        return ClaimSource(claim=claim, template=request)
    if not is_dns_subdomain(template) or not uid or request:
        raise ClaimSourcesError(f"{where}: names neither a template with its UID nor a legacy request")
    return ClaimSource(claim=claim, template=template, uid=uid)
