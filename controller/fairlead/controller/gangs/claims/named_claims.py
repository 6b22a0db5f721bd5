"""Claims that the webhook named in the pod's spec and the controller makes: from which source, and whether it still holds.

The webhook recorded the source (`fairlead.api.claim_sources`) when the pod was created. Between then and the making of the claim
the template may have been deleted or replaced, and another may have made a claim of that name; each is a problem of the pod with
its cure, never a claim of something else. The cure is the pod's deletion: its owner makes another, which is named anew. Pure.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from fairlead.api import legacy, names
from fairlead.api.claim_sources import ClaimSource, ClaimSourcesError, read
from fairlead.api.drivers import legacy_driver
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.membership.members import GangProblem, Lookup, PodClaim
from fairlead.engine.types.reasons import Code
from fairlead.kube import core, resource


def sources(pod: core.Pod) -> dict[str, ClaimSource]:
    """By entry, for the entries whose claim of that name the pod's spec uses. Raises ClaimSourcesError."""
    if names.CLAIM_SOURCES not in pod.metadata.annotations:
        return {}
    recorded = read(pod.metadata.annotations)
    used = {use.name: use.resource_claim_name for use in pod.spec.resource_claims}
    return {entry: source for entry, source in recorded.items() if used.get(entry) == source.claim}


def named_claim(
    pod: core.Pod, entry: str, source: ClaimSource, lookup: Lookup, *, gated: bool
) -> PodClaim | GangProblem:
    """The pod's claim, made or still to be made. `gated`: whether its devices may still be chosen."""
    template = source_template(pod.metadata.namespace, source, lookup)
    claim = lookup.claim(pod.metadata.namespace, source.claim)
    if claim is None:
        if template is None:
            return _problem(pod, entry, _template_gone(pod, source, lookup))
        return PodClaim(
            name=entry,
            key=f"{pod.metadata.uid}/{entry}",
            spec=template.spec.spec,
            template=template,
            source=source,
        )
    if gated and (problem := _unfit(pod, entry, claim, template)) is not None:
        return problem
    return PodClaim(name=entry, key=claim.metadata.uid, spec=claim.spec, template=template, claim=claim, source=source)


def source_template(namespace: str, source: ClaimSource, lookup: Lookup) -> resource.ResourceClaimTemplate | None:
    """The template that was judged, or one made of the legacy request; None where the template is gone or another."""
    if source.is_legacy:
        return legacy_template(source.template, namespace, legacy_driver(lookup.drivers))
    found = lookup.template(namespace, source.template)
    return found if found is not None and found.metadata.uid == source.uid else None


def unseen_templates(pod: core.Pod, recorded: Mapping[str, ClaimSource], lookup: Lookup) -> tuple[str, ...]:
    """Names of the templates that are needed and not known, or known as another."""
    namespace = pod.metadata.namespace
    return tuple(
        sorted(
            {
                source.template
                for source in recorded.values()
                if lookup.claim(namespace, source.claim) is None and source_template(namespace, source, lookup) is None
            }
        )
    )


@functools.lru_cache(maxsize=1024)
def legacy_template(name: str, namespace: str, driver: str) -> resource.ResourceClaimTemplate:
    """What a legacy request stands for; no such object exists in the cluster."""
    return msgspec.convert(legacy.template_manifest(name, namespace, driver=driver), resource.ResourceClaimTemplate)


def unreadable(pod: core.Pod, error: ClaimSourcesError) -> GangProblem:
    return GangProblem(code=Code.INVALID, message=f"pod {pod.metadata.name}: {error}; delete the pod")


def _unfit(
    pod: core.Pod, entry: str, claim: resource.ResourceClaim, template: resource.ResourceClaimTemplate | None
) -> GangProblem | None:
    key = claim.metadata.key
    if not claims.owned_by(claim, pod, entry):
        return _problem(pod, entry, f"ResourceClaim {key} exists, and was not made for this pod")
    if template is not None and claim.spec != template.spec.spec:
        return _problem(pod, entry, f"ResourceClaim {key} asks for something else than {template.metadata.name}")
    if claim.metadata.deletion_timestamp:
        text = f"ResourceClaim {key} of pod {pod.metadata.name} is being deleted; it is made again when it is gone"
        return GangProblem(code=Code.GATHERING, message=text)
    return None


def _template_gone(pod: core.Pod, source: ClaimSource, lookup: Lookup) -> str:
    where = f"ResourceClaimTemplate {pod.metadata.namespace}/{source.template}"
    if lookup.template(pod.metadata.namespace, source.template) is None:
        return f"{where} was deleted after the pod was created"
    return f"{where} was deleted and created again after the pod was created"


def _problem(pod: core.Pod, entry: str, why: str) -> GangProblem:
    cure = "delete the pod, so that its owner makes another"
    return GangProblem(
        code=Code.INVALID, message=f"pod {pod.metadata.name}, spec.resourceClaims[{entry}]: {why}; {cure}"
    )
