"""What a command that reads a cluster says when it cannot: which objects, why, and the next step."""

from __future__ import annotations

from typing import Any

from fairlead.kube import errors
from fairlead.kube.resources import Resource


class NotReadError(Exception):
    """Something could not be read; the message is for the user."""


def not_read(error: errors.ApiError, verb: str, resource: Resource[Any], namespace: str | None) -> NotReadError:
    """The error as a user needs it: what could not be read, why, and the next step."""
    kind = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    where = f" in namespace {namespace}" if namespace else " in all namespaces" if resource.namespaced else ""
    if isinstance(error, errors.Forbidden):
        hint = f"`kubectl auth can-i {verb} {kind}{f' -n {namespace}' if namespace else ''}` says no"
        more = "; with -n NAMESPACE less is needed" if resource.namespaced and not namespace else ""
        return NotReadError(f"you may not {verb} {kind}{where}: {hint}; ask for a role with that verb{more}")
    if isinstance(error, errors.NotFound) and resource.group.endswith("fairlead.dev"):
        return NotReadError(
            f"this cluster serves no {kind}: Fairlead is not installed on it; install it (docs/install.md), or name another "
            "cluster with --context"
        )
    if isinstance(error, errors.Unauthorized):
        return NotReadError(f"the cluster does not know you: {error.message}; renew your credentials")
    if isinstance(error, errors.Unreachable):
        return NotReadError(
            f"the cluster does not answer: {error}; see that it runs and that the kubeconfig's context is the one you mean "
            "(--context)"
        )
    return NotReadError(f"cannot {verb} {kind}{where}: {error}")


def rules_not_read(error: errors.ApiError, resource: Resource[Any]) -> str:
    """What pages lack without DeviceTaintRules."""
    return (
        f"{not_read(error, 'list', resource, None)}. A GPU that such a rule keeps from claims, as fairlead device drain does, is shown as "
        "one without it"
    )
