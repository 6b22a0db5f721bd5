"""Match conditions: CEL that keeps the apiserver from asking about objects that cannot be managed, as narrow as it can be said.

An object is *marked* when it shows by itself that it is managed: a pod, or pod template, by an annotation, gate or queue label of
ours or a legacy limit; a claim by a class or driver of ours. The others may still be managed through what they name.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import foreign, names
from fairlead.webhook.gangs.controller_keys import RESERVED

_OURS = f"k.startsWith('{names.ANNOTATION_PREFIX}')"
_LEGACY = f"k in ['{names.LEGACY_GPU}', '{names.LEGACY_GPU}{names.LEGACY_SHARED}'] || k.startsWith('{names.LEGACY_MIG_PREFIX}')"
_JOB_POD = "(request.kind.kind == 'CronJob' ? object.spec.jobTemplate.spec.template : object.spec.template)"

CLAIM_MAKERS = (
    names.CONTROLLER_USER,
    "system:serviceaccount:kube-system:resource-claim-controller",
    "system:kube-controller-manager",
)
"""What makes claims of templates: our controller, and the claim controller, with an account of its own or without one."""
NOT_BY_CLAIM_MAKERS = f"!(request.userInfo.username in [{', '.join(map(repr, CLAIM_MAKERS))}])"
"""Their claims are copies of what was reviewed as a template; only a policy may say something else of them by now."""
NOT_OUR_TEMPLATES = (
    f"request.userInfo.username != '{names.CONTROLLER_USER}' || request.kind.kind != 'ResourceClaimTemplate'"
)
"""The controller's templates say what a limit says that was judged with its pod."""


def _gated(spec: str) -> str:
    return f"{spec}.?schedulingGates.orValue([]).exists(g, g.name == '{names.ADMISSION_GATE}')"


def _with_legacy_limits(spec: str) -> list[str]:
    parts: list[str] = []
    for containers in (f"{spec}.?containers.orValue([])", f"{spec}.?initContainers.orValue([])"):
        parts += [
            f"{containers}.exists(c, c.?resources.?{side}.orValue({{}}).exists(k, {_LEGACY}))"
            for side in ("limits", "requests")
        ]
    return parts


def _marked(metadata: str, spec: str) -> str:
    """A pod, or pod template, with these metadata and spec."""
    return " || ".join(
        (
            f"{metadata}.?annotations.orValue({{}}).exists(k, {_OURS})",
            f"'{names.QUEUE}' in {metadata}.?labels.orValue({{}})",
            _gated(spec),
            *_with_legacy_limits(spec),
        )
    )


MARKED_POD = _marked("object.metadata", "object.spec")
UNSETTLED_POD = f"!({_gated('object.spec')}) || {' || '.join(_with_legacy_limits('object.spec'))}"
"""Needs a second look: another webhook may have taken our gate off, or added a legacy limit."""
POD_WITH_CLAIMS = "object.spec.?resourceClaims.orValue([]).size() > 0"

MARKED_JOB = (
    f"object.metadata.?annotations.orValue({{}}).exists(k, {_OURS})"
    f" || '{names.QUEUE}' in object.metadata.?labels.orValue({{}})"
    f" || {_marked(f'{_JOB_POD}.?metadata', f'{_JOB_POD}.spec')}"
)
UNMARKED_JOB_WITH_CLAIMS = (f"{_JOB_POD}.spec.?resourceClaims.orValue([]).size() > 0", f"!({MARKED_JOB})")


_ROLLED = "object.spec.template"
ROLLED_WITH_DEVICES = (
    "request.operation == 'CREATE' || object.spec != oldObject.spec",
    f"{_marked(f'{_ROLLED}.?metadata', f'{_ROLLED}.spec')} || {_ROLLED}.spec.?resourceClaims.orValue([]).size() > 0",
)
"""A Deployment or DaemonSet of pods that may be managed, whenever its spec changes."""

_OF_TEMPLATE = ".spec.template.?metadata.?annotations[?k].orValue('')"
JOB_ANNOTATIONS_CHANGED = (
    f"[{', '.join(map(repr, (*RESERVED, names.USER)))}].exists(k, object{_OF_TEMPLATE} != oldObject{_OF_TEMPLATE})"
)
"""An update of a Job that says what only Fairlead writes; of a suspended one the template's annotations may change."""


def pod_changed() -> tuple[str, str]:
    """An update of a pod that removes our gate, or changes an annotation of ours, the labels of queue and review or, while it is
    gated, what names its gang and queue for another system.

    The controller is not delayed when it releases whole gangs: of its updates only those of the claims' sources are sent.
    """
    before, after = _gated("oldObject.spec"), _gated("object.spec")
    old, new = "oldObject.metadata.?annotations.orValue({})", "object.metadata.?annotations.orValue({})"
    labels = [f".metadata.?labels[?'{key}'].orValue('')" for key in (names.QUEUE, names.REVIEWED)]
    sources = f".metadata.?annotations[?'{names.CLAIM_SOURCES}'].orValue('')"
    changed = " || ".join(
        (
            f"{before} && !({after})",
            f"{old}.exists(k, {_OURS} && (!(k in {new}) || {new}[k] != {old}[k]))",
            f"{new}.exists(k, {_OURS} && !(k in {old}))",
            *(f"object{label} != oldObject{label}" for label in labels),
            f"{before} && ({_foreign_changed('annotations')} || {_foreign_changed('labels')})",
        )
    )
    controller = f"request.userInfo.username == '{names.CONTROLLER_USER}'"
    return f"!({controller}) || object{sources} != oldObject{sources}", changed


def _foreign_changed(kind: str) -> str:
    """Another system's annotations or labels that differ."""
    keys = sorted({word.key for word in foreign.METADATA_KEYS if word.kind == kind})
    old, new = (f"{which}.metadata.?{kind}[?k].orValue('')" for which in ("oldObject", "object"))
    return f"[{', '.join(map(repr, keys))}].exists(k, {old} != {new})"


def marked_claim(class_names: Sequence[str], drivers: Sequence[str]) -> str:
    """A claim or template that names one of the classes, or configures one of the drivers."""
    spec = "(request.kind.kind == 'ResourceClaimTemplate' ? object.spec.spec : object.spec)"
    classes, configured_drivers = (f"[{', '.join(map(repr, listed))}]" for listed in (class_names, drivers))
    one_of = f"deviceClassName.orValue('') in {classes}"
    listed = f"{spec}.?devices.?requests.orValue([])"
    configs = f"{spec}.?devices.?config.orValue([])"
    configured = f"{configs}.exists(c, c.?opaque.?driver.orValue('') in {configured_drivers})"
    alternatives = f"r.?firstAvailable.orValue([]).exists(s, s.?{one_of})"
    return f"{configured} || {listed}.exists(r, r.?exactly.?{one_of} || {alternatives})"
