"""Match conditions: what the apiserver asks us about, in CEL, as narrow as it can be said.

Exists so that what cannot be managed never reaches the webhook, and so that the registration reads as a list.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import foreign, names

_OURS = f"k.startsWith('{names.ANNOTATION_PREFIX}')"
_LEGACY = f"k == '{names.LEGACY_GPU}' || k.startsWith('{names.LEGACY_MIG_PREFIX}')"
NOT_CONTROLLER = f"request.userInfo.username != '{names.CONTROLLER_USER}'"
"""The controller is never held up by us: it releases whole gangs, and makes their claims."""


def says_ours(pod: str) -> list[str]:
    return [ours(f"{pod}.metadata", f"{pod}.spec")]


def only_claims(pod: str) -> list[str]:
    return [f"{pod}.spec.?resourceClaims.orValue([]).size() > 0", f"!({ours(f'{pod}.metadata', f'{pod}.spec')})"]


_TEMPLATE = "(request.kind.kind == 'CronJob' ? object.spec.jobTemplate.spec.template : object.spec.template)"


def job_says_ours() -> list[str]:
    own = f"object.metadata.?annotations.orValue({{}}).exists(k, {_OURS})"
    own = f"{own} || '{names.QUEUE}' in object.metadata.?labels.orValue({{}})"
    return [f"{own} || {ours(f'{_TEMPLATE}.?metadata', f'{_TEMPLATE}.spec')}"]


def job_only_claims() -> list[str]:
    (says,) = job_says_ours()
    return [f"{_TEMPLATE}.spec.?resourceClaims.orValue([]).size() > 0", f"!({says})"]


def ours(metadata: str, spec: str) -> str:
    """A pod, or pod template, that says by itself that it is ours: an annotation, the queue label, a gate, a legacy limit."""
    parts = [f"{metadata}.?annotations.orValue({{}}).exists(k, {_OURS})"]
    parts.append(f"'{names.QUEUE}' in {metadata}.?labels.orValue({{}})")
    parts.append(f"{spec}.?schedulingGates.orValue([]).exists(g, g.name == '{names.ADMISSION_GATE}')")
    for containers in (f"{spec}.?containers.orValue([])", f"{spec}.?initContainers.orValue([])"):
        parts += [
            f"{containers}.exists(c, c.?resources.?{side}.orValue({{}}).exists(k, {_LEGACY}))"
            for side in ("limits", "requests")
        ]
    return " || ".join(parts)


def changed() -> str:
    """An update of a pod that takes our gate away, or changes an annotation of ours, the queue label or, while it is gated,
    what names its gang and queue for another system.
    """
    gated = f".?schedulingGates.orValue([]).exists(g, g.name == '{names.ADMISSION_GATE}')"
    old, new = "oldObject.metadata.?annotations.orValue({})", "object.metadata.?annotations.orValue({})"
    label = f".metadata.?labels[?'{names.QUEUE}'].orValue('')"
    return " || ".join(
        (
            f"oldObject.spec{gated} && !(object.spec{gated})",
            f"{old}.exists(k, {_OURS} && (!(k in {new}) || {new}[k] != {old}[k]))",
            f"{new}.exists(k, {_OURS} && !(k in {old}))",
            f"object{label} != oldObject{label}",
            f"oldObject.spec{gated} && ({_foreign('annotations')} || {_foreign('labels')})",
        )
    )


def _foreign(kind: str) -> str:
    """Another system's words that differ."""
    keys = sorted({word.key for word in foreign.WORDS if word.kind == kind})
    old, new = (f"{which}.metadata.?{kind}[?k].orValue('')" for which in ("oldObject", "object"))
    return f"[{', '.join(map(repr, keys))}].exists(k, {old} != {new})"


def claim_says_ours(named_classes: Sequence[str], named_drivers: Sequence[str]) -> str:
    """A claim or template that names a class that we ship, or configures a managed driver."""
    spec = "(request.kind.kind == 'ResourceClaimTemplate' ? object.spec.spec : object.spec)"
    classes, drivers = (f"[{', '.join(repr(name) for name in listed)}]" for listed in (named_classes, named_drivers))
    one_of = f"deviceClassName.orValue('') in {classes}"
    listed = f"{spec}.?devices.?requests.orValue([])"
    configured = f"{spec}.?devices.?config.orValue([]).exists(c, c.?opaque.?driver.orValue('') in {drivers})"
    alternatives = f"r.?firstAvailable.orValue([]).exists(s, s.?{one_of})"
    return f"{configured} || {listed}.exists(r, r.?exactly.?{one_of} || {alternatives})"
