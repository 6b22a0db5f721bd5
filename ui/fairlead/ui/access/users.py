"""A user as the cluster knows one, and the rights that are asked for. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fairlead.kube.resources import GANGS, NODES, QUEUES, Resource

AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, kw_only=True)
class User:
    """A user as a TokenReview names it. `extra`: what an authenticator adds, for authorizers that read it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Right:
    """The right to list objects of a kind; `namespace` "": in all namespaces, or of a kind that has none."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    verb: str = field(default="list")

    def attributes(self) -> dict[str, str]:
        """`resourceAttributes` of a SubjectAccessReview."""
        found = {"group": self.group, "version": self.version, "resource": self.plural, "verb": self.verb}
        return found | ({"namespace": self.namespace} if self.namespace else {})


def to_list(resource: Resource[Any], namespace: str = "") -> Right:
    return Right(group=resource.group, version=resource.version, plural=resource.plural, namespace=namespace)


LIST_NODES = to_list(NODES)
LIST_QUEUES = to_list(QUEUES)


def list_gangs(namespace: str = "") -> Right:
    return to_list(GANGS, namespace)
