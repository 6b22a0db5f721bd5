"""The built-in plugins: limit ranges, service account, default tolerations and priority change pods; quotas count what is created.

Those that change pods are idempotent, so that they may run again after webhooks. Node restriction and storage are not here, and of limit
ranges neither minima nor maxima: only what a container gets that says nothing. Quotas are the last step: what a new object counts for
(`quota_usage`) is added to `status.used`, or it is refused. As in the real one, `status` decides: a quota counts from when its controller
has written `status.hard`, and what was added for an object that was not stored after all (its name exists) stays until the controller
counts again. Updates change no count: the specs of claims are immutable, and pods are not resized here.
Source: plugin/pkg/admission/{limitranger,serviceaccount,defaulttolerationseconds,priority}, k8s.io/apiserver's resourcequota (1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.kinds.base import Attributes, Services
from fairlead.sandbox.apiserver.kinds.errors import quote
from fairlead.sandbox.apiserver.kinds.podspec import all_containers
from fairlead.sandbox.apiserver.kinds.request import Json, Rejected, clone
from fairlead.sandbox.quota_usage import concerns, extended_resources, selects, shown, units, unspecified, usage

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  # a path
_TOKEN_SECONDS = 3607  # an hour and 7 s: by it kubelet recognizes the default
_TOLERATION_SECONDS = 300
_AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LIMITED = "kubernetes.io/limit-ranger"
_MIRROR = "kubernetes.io/config.mirror"
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def mutate_pod(attributes: Attributes) -> None:
    """Complete a pod that is being created (or updated, for tolerations)."""
    obj = attributes.object
    if attributes.kind.group or attributes.kind.plural != "pods" or attributes.subresource or obj is None:
        return
    if attributes.operation == "CREATE":
        spec = obj.setdefault("spec", {})
        _default_resources(attributes, obj, spec)
        _service_account(attributes, spec)
        _tolerations(spec)
        _priority(attributes, spec)


def _default_resources(attributes: Attributes, obj: Json, spec: Json) -> None:
    """A container's limits and requests that are absent, from the namespace's limit ranges; a limit stands for its request."""
    said = []
    for limits in attributes.context.services.list("", "limitranges", attributes.namespace):
        for item in (limits.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            default = item.get("default") or {}
            wanted = {"request": {**default, **(item.get("defaultRequest") or {})}, "limit": default}
            for container in all_containers(spec):
                resources = container.setdefault("resources", {})
                resources["requests"] = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
                for what, amounts in wanted.items():
                    given = resources.setdefault(f"{what}s", {})
                    missing = sorted(name for name in amounts if name not in given)
                    if missing:
                        given.update({name: amounts[name] for name in missing})
                        said.append(f"{', '.join(missing)} {what} for container {container['name']}")
                for what in wanted:
                    if not resources[f"{what}s"]:
                        del resources[f"{what}s"]
    if said:
        notes = obj["metadata"].setdefault("annotations", {})
        notes[_LIMITED] = f"LimitRanger plugin set: {'; '.join(said)}"


def _service_account(attributes: Attributes, spec: Json) -> None:
    assert attributes.object is not None
    if _MIRROR in (attributes.object["metadata"].get("annotations") or {}):
        return
    name = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    account = attributes.context.services.get("", "serviceaccounts", name, attributes.namespace)
    if account is None and name != "default":  # the default one is created soon after its namespace
        raise _forbidden(
            attributes,
            f"error looking up service account {attributes.namespace}/{name}: serviceaccount {quote(name)} not found",
        )
    wanted = spec.get("automountServiceAccountToken")
    if wanted is None:
        wanted = (account or {}).get("automountServiceAccountToken")
    if wanted is not False:
        _mount_token(attributes, spec)


def _mount_token(attributes: Attributes, spec: Json) -> None:
    volumes = spec.get("volumes") or []
    volume = next((one["name"] for one in volumes if one.get("name", "").startswith("kube-api-access-")), "")
    name = volume or "kube-api-access-" + "".join(attributes.context.services.random.choices(_ALPHABET, k=5))
    mounted = False
    for container in all_containers(spec):
        mounts = container.setdefault("volumeMounts", [])
        if any(mount.get("mountPath") == TOKEN_PATH for mount in mounts):
            continue
        mounts.append({"name": name, "readOnly": True, "mountPath": TOKEN_PATH})
        mounted = True
    if mounted and not volume:
        spec.setdefault("volumes", []).append({"name": name, "projected": _projection()})


def _projection() -> Json:
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
            # Recorded from the real 1.36.2 that the conformance vectors come from.
            {
                "configMap": {
                    "name": "openshift-service-ca.crt",
                    "items": [{"key": "service-ca.crt", "path": "service-ca.crt"}],
                }
            },
        ],
        "defaultMode": 0o644,
    }


def _tolerations(spec: Json) -> None:
    given = spec.get("tolerations") or []
    missing = [key for key in _AWAY if not any(_tolerates(one, key) for one in given)]
    if missing:
        spec["tolerations"] = [
            *given,
            *(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
                for key in missing
            ),
        ]


def _tolerates(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in {key, ""} and toleration.get("effect", "") in {"NoExecute", ""}


def _priority(attributes: Attributes, spec: Json) -> None:
    services = attributes.context.services
    name = spec.get("priorityClassName", "")
    policy = "PreemptLowerPriority"
    if name:
        found = services.get("scheduling.k8s.io", "priorityclasses", name)
        if found is None and name not in _SYSTEM_PRIORITIES:
            raise _forbidden(attributes, f"no PriorityClass with name {name} was found")
        value = (found or {}).get("value", _SYSTEM_PRIORITIES.get(name, 0))
        policy = (found or {}).get("preemptionPolicy", policy)
    else:
        defaults = [one for one in services.list("scheduling.k8s.io", "priorityclasses") if one.get("globalDefault")]
        chosen = min(defaults, key=lambda one: int(one.get("value", 0)), default=None)
        value = 0
        if chosen is not None:
            value = chosen.get("value", 0)
            policy = chosen.get("preemptionPolicy", policy)
            spec["priorityClassName"] = chosen["metadata"]["name"]
    if spec.get("priority") is not None and spec["priority"] != value:
        raise _forbidden(
            attributes,
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    if spec.get("preemptionPolicy") is None:
        spec["preemptionPolicy"] = policy


Store = Callable[[Json], None]
"""Replaces a ResourceQuota."""


class Quotas:
    def __init__(self, services: Services, store: Store) -> None:
        self._services = services
        self._store = store

    def charge(self, attributes: Attributes) -> None:
        """Raises Rejected where a quota would be exceeded; a dry run changes no quota."""
        if attributes.operation != "CREATE" or attributes.subresource or attributes.object is None:
            return
        quotas = self._services.list("", "resourcequotas", attributes.namespace) if attributes.namespace else ()
        if not quotas:
            return
        resource = str(attributes.kind.group_resource)
        extended = extended_resources(list(self._services.list("resource.k8s.io", "deviceclasses")))
        asked = usage(resource, attributes.object, extended, now_s=self._services.now().timestamp())
        changed: list[Json] = []
        for quota in quotas:
            status = quota.get("status") or {}
            hard, used = status.get("hard") or {}, status.get("used") or {}
            names = sorted(name for name in hard if concerns(name, resource, extended))
            if not names or not selects(quota, resource, attributes.object):
                continue
            missing = unspecified(names, attributes.object) if resource == "pods" else {}
            if missing:
                said = "; ".join(f"{name} for: {','.join(silent)}" for name, silent in sorted(missing.items()))
                raise _forbidden(attributes, f"failed quota: {quota['metadata']['name']}: must specify {said}")
            unknown = [name for name in names if name not in used]
            if unknown:
                raise _forbidden(
                    attributes, f"status unknown for quota: {quota['metadata']['name']}, resources: {','.join(names)}"
                )
            more = {name: asked[name] for name in names if asked.get(name)}
            over = [name for name in more if units(name, used[name]) + more[name] > units(name, hard[name])]
            if over:
                raise _forbidden(
                    attributes,
                    f"exceeded quota: {quota['metadata']['name']}, requested: {_shown(_quantities(more), over)}, "
                    f"used: {_shown(used, over)}, limited: {_shown(hard, over)}",
                )
            if more:
                total = _quantities({name: units(name, used[name]) + value for name, value in more.items()})
                changed.append({**clone(quota), "status": {**status, "used": {**used, **total}}})
        if not attributes.dry_run:
            for quota in changed:
                self._store(quota)


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: shown(name, value) for name, value in amounts.items()}


def _shown(amounts: Mapping[str, object], names: Iterable[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)


def _forbidden(attributes: Attributes, why: str) -> Rejected:
    kind, name = attributes.kind, attributes.name or "Unknown"
    return statuses.forbidden(kind.group, kind.plural, name, why)
