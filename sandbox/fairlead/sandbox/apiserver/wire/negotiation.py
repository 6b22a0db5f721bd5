"""The form of an answer that the Accept header requests: object, table, metadata only; JSON or YAML.

Pure. Protobuf and CBOR are not supported: a client that accepts JSON, too, gets JSON, another gets 406.
Source: k8s.io/apiserver/pkg/endpoints/handlers/negotiation (1.36).
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.wire.bodies import YAML
from fairlead.sandbox.apiserver.wire.exchange import JSON

OBJECT, TABLE, METADATA = "object", "table", "metadata"
_ACCEPTED = (JSON, YAML, "application/vnd.kubernetes.protobuf")
_PARTIAL = {"PartialObjectMetadata", "PartialObjectMetadataList"}
_DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True)
class Wanted:
    """`version` is that of meta.k8s.io (v1 or v1beta1) or, for discovery, of apidiscovery.k8s.io (v2, v2beta1)."""

    form: str = OBJECT
    yaml: bool = False
    version: str = "v1"

    @property
    def content_type(self) -> str:
        return YAML if self.yaml else JSON


@dataclass(frozen=True)
class _Clause:
    media_type: str
    params: dict[str, str]
    quality: float


def _clauses(accept: str) -> list[_Clause]:
    """The header's clauses, best first; equals keep their order."""
    clauses = []
    for part in accept.split(","):
        media_type, *params = (piece.strip() for piece in part.split(";"))
        if not media_type:
            continue
        found = dict(param.split("=", 1) for param in params if "=" in param)
        try:
            quality = float(found.pop("q", "1"))
        except ValueError:
            quality = 0.0
        clauses.append(_Clause(media_type.lower(), found, quality))
    return sorted(clauses, key=lambda clause: -clause.quality)


def _is_yaml(media_type: str) -> bool | None:
    """None when the type is neither JSON nor YAML."""
    if media_type in {JSON, "*/*", "application/*"}:
        return False
    return True if media_type == YAML else None


def negotiate(accept: str) -> Wanted:
    """The form of the answer for objects, lists and watches. Raises 406."""
    if not accept.strip():
        return Wanted()
    for clause in _clauses(accept):
        is_yaml = _is_yaml(clause.media_type)
        if is_yaml is None:
            continue
        wanted, group, version = clause.params.get("as"), clause.params.get("g"), clause.params.get("v", "")
        if wanted is None:
            return Wanted(OBJECT, is_yaml)
        if group != "meta.k8s.io" or version not in {"v1", "v1beta1"}:
            continue
        if wanted == "Table":
            return Wanted(TABLE, is_yaml, version)
        if wanted in _PARTIAL:
            return Wanted(METADATA, is_yaml, version)
    raise statuses.not_acceptable(_ACCEPTED)


def aggregated_discovery(accept: str) -> Wanted | None:
    """The aggregated form, when the client prefers it; None for the plain one. Raises 406."""
    if not accept.strip():
        return None
    for clause in _clauses(accept):
        is_yaml = _is_yaml(clause.media_type)
        if is_yaml is None:
            continue
        if clause.params.get("as") is None:
            return None
        if clause.params.get("as") == _DISCOVERY and clause.params.get("g") == "apidiscovery.k8s.io":
            version = clause.params.get("v", "")
            if version in {"v2", "v2beta1"}:
                return Wanted(_DISCOVERY, is_yaml, version)
    raise statuses.not_acceptable(_ACCEPTED)
