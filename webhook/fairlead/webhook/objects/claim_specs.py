"""The spec of a ResourceClaim, read from a raw object or from the name of a legacy request's template."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from fairlead.api import legacy
from fairlead.kube import nulls
from fairlead.kube.resource import ResourceClaimSpec
from fairlead.webhook.objects.fields import Json, MalformedError, map_at


def claim_spec(object_: Json, path: str) -> ResourceClaimSpec:
    """The claim spec at path: `spec` of a ResourceClaim, `spec.spec` of a template. Raises MalformedError."""
    spec = object_
    for step in path.split("."):
        spec = map_at(spec, step)
    try:
        return nulls.convert(spec, ResourceClaimSpec)
    except msgspec.ValidationError as error:
        raise MalformedError(f"{path}: {error}") from None


@lru_cache(maxsize=1024)
def legacy_claim_spec(template: str, driver: str) -> ResourceClaimSpec:
    """The spec that the template of that name has. Raises ValueError where the name stands for no legacy request."""
    return msgspec.convert(legacy.template_manifest(template, "", driver=driver)["spec"]["spec"], ResourceClaimSpec)
