"""The roles and bindings that a cluster starts with, from roles.yaml, for the users that this sandbox has.

The system's own loops have the permissions that they have in a real cluster, and no more. Nodes, for which the real one has an
authorizer, have a binding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.rbac import GROUP
from fairlead.sandbox.files import table
from fairlead.sandbox.release import NEWEST, Release

_EVENTS = [["create patch update", group, "events"] for group in ("", "events.k8s.io")]
_EVICTION_BY_TAINT = "device-taint-eviction-controller"


@cache
def _written() -> Json:
    found: Json = table(__file__, "roles.yaml")
    return found


def _rules(written: Sequence[Any], release: Release) -> Iterator[Json]:
    for rule in written:
        for verbs, *where in _EVENTS if rule == "events" else [rule]:
            if len(where) == 1:
                yield {"verbs": verbs.split(), "nonResourceURLs": where[0].split()}
                continue
            group, resources, *needs = where
            if all(map(release.has, needs)):
                yield {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}


def _system(release: Release) -> Iterator[tuple[str, Sequence[Any], list[Json]]]:
    """Name, rules and subjects of each role."""
    for name, role in _written()["system"].items():
        kinds_and_names = (each.split() for each in role["subjects"])
        yield name, role["rules"], [{"kind": kind, "apiGroup": GROUP, "name": of} for kind, of in kinds_and_names]
    for name, rules in _written()["controllers"].items():
        if name != _EVICTION_BY_TAINT or release.has("device-taints"):
            account = {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
            yield f"system:controller:{name}", rules, [account]


def cluster_roles(release: Release = NEWEST) -> Iterator[Json]:
    for name, rules, _ in _system(release):
        yield {"metadata": _metadata(name), "rules": list(_rules(rules, release))}
    selectors: list[Json] = []
    for name, rules in _written()["users"].items():
        # `kubectl create clusterrole --aggregation-rule` and CRD authors add to these by label.
        label = {f"{GROUP}/aggregate-to-{name}": "true"}
        selectors = [{"matchLabels": label}, *selectors]
        yield {"metadata": _metadata(f"system:aggregate-to-{name}", label), "rules": list(_rules(rules, release))}
        yield {
            "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
            "aggregationRule": {"clusterRoleSelectors": selectors},
            "rules": [],
        }


def cluster_role_bindings(release: Release = NEWEST) -> Iterator[Json]:
    for name, _, subjects in _system(release):
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        yield {"metadata": _metadata(name), "roleRef": role, "subjects": subjects}


def _metadata(name: str, labels: dict[str, str] | None = None) -> Json:
    return {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **(labels or {})},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }
