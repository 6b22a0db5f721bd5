"""Writes the two webhook configurations when the webhook starts, and repairs them when they are changed.

So an install has no order to keep and no caBundle to copy. Removes nothing when the webhook stops: a restart must not leave objects
unreviewed. An uninstall removes them, since the webhook's ClusterRole owns them.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import CLUSTER_ROLES, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from fairlead.webhook.registration.configurations import NAME, Json, Target, mutating, validating

log = logging.getLogger(__name__)

_FIELDS: Json = {
    "name": {},
    "clientConfig": {"url": {}, "caBundle": {}, "service": {key: {} for key in ("namespace", "name", "path", "port")}},
    "rules": {key: {} for key in ("apiGroups", "apiVersions", "operations", "resources", "scope")},
    "failurePolicy": {},
    "matchPolicy": {},
    "namespaceSelector": {"matchLabels": {}, "matchExpressions": {key: {} for key in ("key", "operator", "values")}},
    "objectSelector": {"matchLabels": {}, "matchExpressions": {key: {} for key in ("key", "operator", "values")}},
    "sideEffects": {},
    "timeoutSeconds": {},
    "admissionReviewVersions": {},
    "reinvocationPolicy": {},
    "matchConditions": {"name": {}, "expression": {}},
}
"""Fields of a webhook in admissionregistration.k8s.io/v1 of 1.36: in these, what is stored is repaired."""


async def ensure(client: Client, target: Target) -> bool:
    """Write both configurations where they are missing or differ. True if something was written. Raises ApiError."""
    owner = await _owner(client)
    owners = [] if owner is None else [owner]
    wrote = await _ensure(client, MUTATING_WEBHOOKS, mutating(target), owners)
    return await _ensure(client, VALIDATING_WEBHOOKS, validating(target), owners) or wrote


async def _owner(client: Client) -> Json | None:
    """The ClusterRole that the webhook was installed with, as an ownerReference; None where there is none. Raises ApiError.

    An uninstall that deletes the role deletes the configurations with it (garbage collection), and a webhook that still runs
    then cannot write them again.
    """
    try:
        role = await client.get(CLUSTER_ROLES, names.WEBHOOK_ACCOUNT)
    except (errors.NotFound, errors.Forbidden):
        log.info("no ClusterRole %s to read: an uninstall leaves the webhook configurations", names.WEBHOOK_ACCOUNT)
        return None
    uid = role["metadata"]["uid"]
    return {"apiVersion": CLUSTER_ROLES.api_version, "kind": "ClusterRole", "name": names.WEBHOOK_ACCOUNT, "uid": uid}


async def _ensure(client: Client, resource: Resource[Json], wanted: Json, owners: list[Json]) -> bool:
    wanted = copy.deepcopy(wanted)  # its parts are shared, and get what is kept of the stored ones
    wanted["metadata"]["ownerReferences"] = owners
    try:
        found = await client.get(resource, NAME)
    except errors.NotFound:
        try:
            await client.create(resource, wanted)
        except errors.AlreadyExists:
            return False  # another replica was first; the next check compares
        log.info("%s %s: written", resource.kind, NAME)
        return True
    _keep_foreign_bundles(wanted["webhooks"], found.get("webhooks") or [])
    _keep_unknown_fields(wanted["webhooks"], found.get("webhooks") or [])
    if found.get("webhooks") == wanted["webhooks"] and (found["metadata"].get("ownerReferences") or []) == owners:
        return False
    metadata = {**found["metadata"], "ownerReferences": owners}
    try:
        await client.replace(resource, found | {"metadata": metadata, "webhooks": wanted["webhooks"]})
    except errors.Conflict:
        return False
    log.info("%s %s: repaired", resource.kind, NAME)
    return True


def _keep_unknown_fields(wanted: list[Json], found: list[Json]) -> None:
    """Fields that a later apiserver has and may set by default: without them, what is stored would never equal what is wanted."""
    stored = {webhook.get("name"): webhook for webhook in found}
    for webhook in wanted:
        _copy_unknown(webhook, stored.get(webhook["name"]), _FIELDS)


def _copy_unknown(wanted: Any, found: Any, known: Json) -> None:
    if not known:
        return
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for one, stored in zip(wanted, found, strict=True):
            _copy_unknown(one, stored, known)
    elif isinstance(wanted, dict) and isinstance(found, dict):
        for name, value in found.items():
            if name not in known:
                wanted[name] = value
            elif name in wanted:
                _copy_unknown(wanted[name], value, known[name])


def _keep_foreign_bundles(wanted: list[Json], found: list[Json]) -> None:
    """Where we have no authority, another program writes the caBundle (cert-manager's injector): keep what is stored."""
    stored = {webhook.get("name"): (webhook.get("clientConfig") or {}).get("caBundle") for webhook in found}
    for webhook in wanted:
        config = webhook["clientConfig"]
        if "caBundle" not in config and stored.get(webhook["name"]):
            config["caBundle"] = stored[webhook["name"]]
