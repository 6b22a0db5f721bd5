"""What `doctor` and `check readiness` create for trial, with dryRun: a pod, which the webhook reviews, and ResourceSlices.

Nothing is stored. An apiserver drops fields of a slice whose feature gate is off, and says nothing: what comes back of one tells what
it keeps. Counters are tried in a slice of their own, so that they do not spoil the other fields' trial: beside the devices that draw
from them, as 1.34 wants it, and alone where that is refused, as since 1.35.
Example: 1.36 answers the first of the two with 422, keeps the second whole, and so has MIG on demand; with the gate off it stores the
first without its counters.
Source: validateResourceSliceSpec and dropDisabledFields (pkg/apis/resource/validation, pkg/registry/resource/resourceslice) of 1.34 to 1.37.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlead.api import names
from fairlead.cli.health import values
from fairlead.cli.health.seen import SliceTrial, Trial
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.releases import NEEDS, Need
from fairlead.kube.resources import Raw, raw

TRIAL = "fairlead-doctor"
_POD: Raw = {
    "metadata": {"name": TRIAL, "annotations": {names.GANG: TRIAL, names.GANG_SIZE: "1"}},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "main",
                "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"cpu": "1m", "memory": "8Mi"}},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}
_CALL_FAILED = "failed calling webhook"
_AFTER_WEBHOOKS = ("violates PodSecurity", "exceeded quota")
_NO_RIGHT = "cannot create resource"


async def webhook(client: Client, namespace: str) -> tuple[Trial, float | None]:
    """The trial, and the apiserver's time of it. The gang's annotation is why the apiserver asks the webhook.

    The pod keeps to the `restricted` level of Pod Security, so that little else refuses it.
    """
    try:
        made = await client.create(raw(resources.PODS), _POD, namespace, dry_run=True)
    except errors.ApiError as error:
        return _refused(error, namespace), None
    return Trial(answered=True), values.time_s(made, "metadata", "creationTimestamp")


def _refused(error: errors.ApiError, namespace: str) -> Trial:
    """The result of a refusal, which says whether our webhook had answered by then: quotas and Pod Security are judged after the mutating webhooks."""
    message, ours = values.clean(error.message), f".{names.API_GROUP}" in error.message
    if _CALL_FAILED in error.message and ours:
        return Trial(answered=False, message=message)
    if (ours and "denied the request" in error.message) or any(each in error.message for each in _AFTER_WEBHOOKS):
        return Trial(answered=True, message=message)
    if isinstance(error, errors.Forbidden) and _NO_RIGHT in error.message:
        return Trial(
            message=f"whether the apiserver reaches the webhook: you may not create pods in namespace {namespace}"
        )
    return Trial(message=f"a pod created for trial in namespace {namespace} was refused: {message}")


# -- slices ------------------------------------------------------------------------------------------------------------

_DOMAIN = f"doctor.{names.API_GROUP}"
_UNIT = {"counters": {"unit": {"value": "1"}}}
_COUNTERS: Raw = {"sharedCounters": [{"name": "trial", **_UNIT}]}
_DRAWS: Raw = {"devices": [{"name": "trial", "consumesCounters": [{"counterSet": "trial", **_UNIT}]}]}
_DEVICE: Raw = {
    "devices": [
        {
            "name": "trial",
            "allowMultipleAllocations": True,
            "capacity": {
                "memory": {
                    "value": "2Mi",
                    "requestPolicy": {"default": "1Mi", "validRange": {"min": "1Mi", "max": "2Mi", "step": "1Mi"}},
                }
            },
            "taints": [{"key": f"{_DOMAIN}/trial", "effect": "NoSchedule"}],
            "bindsToNode": True,
            "bindingConditions": [f"{_DOMAIN}/ready"],
            "bindingFailureConditions": [f"{_DOMAIN}/failed"],
        }
    ]
}
TRIED: Final[tuple[Need, ...]] = tuple(
    each for each in NEEDS if any(kind == "ResourceSlice" for kind, _ in each.fields)
)
GATES: Final = frozenset(each.gate for each in TRIED)
"""What an apiserver that names these gates need not be asked by slices."""


async def slices(client: Client) -> SliceTrial:
    """What the apiserver keeps; a trial that is refused for another reason than its layout leaves its lines out."""
    kept: dict[str, bool] = {}
    gaps: list[str] = []
    for layouts in ((_DEVICE,), (_COUNTERS | _DRAWS, _COUNTERS)):
        try:
            kept |= await _first_valid(client, layouts)
        except errors.ApiError as error:
            gaps.append(_slice_gap(error))
    return SliceTrial(kept=kept, gap=next(iter(gaps), ""))


async def _first_valid(client: Client, layouts: Sequence[Raw]) -> dict[str, bool]:
    """Raises the last layout's ApiError."""
    *others, last = layouts
    for spec in others:
        try:
            return kept_of(_slice(spec), await _create(client, spec))
        except errors.Invalid:
            continue
    return kept_of(_slice(last), await _create(client, last))


async def _create(client: Client, spec: Raw) -> Raw:
    return await client.create(raw(resources.RESOURCE_SLICES), _slice(spec), dry_run=True)


def _slice(spec: Raw) -> Raw:
    """A slice of a driver and a node that there are not, so that nothing takes it for a real one."""
    return {
        "metadata": {"generateName": f"{TRIAL}-"},
        "spec": {
            "driver": _DOMAIN,
            "nodeName": TRIAL,
            "pool": {"name": TRIAL, "generation": 1, "resourceSliceCount": 1},
            **spec,
        },
    }


def kept_of(sent: Raw, stored: Raw) -> dict[str, bool]:
    """For each line of the table of which something was sent: whether all of that came back."""
    found: dict[str, bool] = {}
    for need in TRIED:
        paths = [path.split(".") for kind, path in need.fields if kind == "ResourceSlice"]
        if asked := [path for path in paths if _has(sent, path)]:
            found[need.key] = all(_has(stored, path) for path in asked)
    return found


def _has(obj: Any, path: Sequence[str]) -> bool:
    """Whether the path leads to a value; `[]` is any element of a list, `{}` any value of a map."""
    if not path:
        return obj not in (None, [], {})
    first, rest = path[0], path[1:]
    inner = obj.get(first.rstrip("[]{}")) if isinstance(obj, Mapping) else None
    if first.endswith("[]"):
        return isinstance(inner, list) and any(_has(each, rest) for each in inner)
    if first.endswith("{}"):
        return isinstance(inner, Mapping) and any(_has(each, rest) for each in inner.values())
    return _has(inner, rest)


def _slice_gap(error: errors.ApiError) -> str:
    if isinstance(error, errors.Forbidden) and _NO_RIGHT in error.message:
        return "which fields of slices the apiserver keeps: you may not create resourceslices.resource.k8s.io"
    return values.clean(
        f"which fields of slices the apiserver keeps: a slice created for trial was refused: {error.message}"
    )
