"""What the controllers' modules share: objects of a template, owned by the object that they are made for.

A shape is what one controller creates for one object as the apiserver stored it, hence after Fairlead's webhook: a function of that
object and of others that it refers to. Written from the controller's documentation and code, whose version and address each module
names; what does not matter to gangs and devices (services, ports, most environment variables) is left out.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Obj = dict[str, Any]
Lookup = Callable[[str, str, str], Obj]
"""(kind, namespace, name) → the stored object; "" as namespace where the kind has none. Raises KeyError."""
Shape = Callable[[Obj, Lookup], Iterable[Obj]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind that the controller's installation brings."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def definition(self) -> Obj:
        """A CustomResourceDefinition without rules: the sandbox stores what is written."""
        group, _, version = self.api_version.partition("/")
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        names = {
            "plural": self.plural,
            "singular": self.kind.lower(),
            "kind": self.kind,
            "listKind": f"{self.kind}List",
        }
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{group}"},
            "spec": {
                "group": group,
                "names": names,
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "versions": [served],
            },
        }


@dataclass(frozen=True, kw_only=True)
class Controller:
    """One controller: its version and sources, the account it runs as, its kinds, and what it makes of an object of a kind."""

    name: str
    version: str
    sources: tuple[str, ...]
    account: str
    kinds: tuple[Kind, ...] = ()
    shapes: Mapping[str, Shape] = field(default_factory=dict)


def pod(
    owner: Obj, template: Obj, *, name: str = "", generate_name: str = "", labels: Any = None, **annotations: str
) -> Obj:
    """A pod of a template. Labels and annotations of the template stay; those given here come on top.

    Annotations are given as keyword arguments by `**{"example.com/key": "value"}`.
    """
    found = copy.deepcopy(template.get("metadata") or {})
    metadata: Obj = {
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(found.get("labels") or {}), **(labels or {})},
        "annotations": {**(found.get("annotations") or {}), **annotations},
        "ownerReferences": [owned_by(owner)],
        **({"name": name} if name else {"generateName": generate_name}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy.deepcopy(template["spec"])}


def child(
    owner: Obj, api_version: str, kind: str, name: str, spec: Obj, *, labels: Any = None, annotations: Any = None
) -> Obj:
    """Another object of the owner's namespace, owned by it."""
    metadata: Obj = {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
        "ownerReferences": [owned_by(owner)],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": copy.deepcopy(spec)}


def owned_by(owner: Obj) -> Obj:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"].get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def with_env(container: Obj, **variables: str) -> None:
    """Add variables that the container does not set itself."""
    env = container.setdefault("env", [])
    given = {each["name"] for each in env}
    env += [{"name": name, "value": value} for name, value in variables.items() if name not in given]


def sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def ending(text: str) -> str:
    """Five letters as the apiserver and the controllers of Deployments append them to names; the same for the same text."""
    letters = "bcdfghjklmnpqrstvwxz2456789"
    return "".join(letters[byte % len(letters)] for byte in hashlib.sha256(text.encode()).digest()[:5])
