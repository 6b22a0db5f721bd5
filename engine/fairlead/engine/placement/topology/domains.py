"""The domains of a topology: sets of nodes that have one value of a node label, and, within them, of the next one.

A level is a node label, or (where no node has such a label) a device attribute, such as the clique of a multi-node NVLink
fabric; nodes without it are in no domain. A domain of several levels is a path: rack "1" of block "a" is another than rack "1" of
block "b", so names need to be unique within the level above only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.api.topology import PATH
from fairlead.engine.placement.model import TopologyDomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.search.placer import Placer

Labels = tuple[str, ...]
JOINED_MAX = 1024  # remembered
WITHIN_MAX = 4096  # partitions of domains that are remembered


class Partition:
    """The domains of some levels, in the order of their paths, and that of each node which is in one."""

    __slots__ = ("domains", "of")

    def __init__(self, domain_of: dict[CandidateNode, tuple[str, ...]]) -> None:
        groups: dict[tuple[str, ...], list[CandidateNode]] = {}
        for node, path in domain_of.items():
            groups.setdefault(path, []).append(node)
        found = {path: TopologyDomain(PATH.join(path), groups[path]) for path in sorted(groups)}
        self.domains = list(found.values())
        self.of = {node: found[path] for node, path in domain_of.items()}

    def where(self, nodes: Iterable[CandidateNode]) -> set[TopologyDomain | None]:
        """The domains of these nodes; None for those that are in none."""
        return {self.of.get(node) for node in nodes}


class Domains:
    """Made at first use; the same objects until nodes come, go or change what they are."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._values: dict[str, dict[CandidateNode, str]] = {}
        self._known: dict[tuple[TopologyDomain | None, Labels], Partition] = {}
        self._joined: dict[tuple[TopologyDomain, ...], TopologyDomain] = {}
        self._membership = -1

    def partition(self, labels: Labels, within: TopologyDomain | None = None) -> Partition:
        """The nodes, all or those of a domain, by their values of the labels."""
        self._renew()
        found = self._known.get((within, labels))
        if found is None:
            if len(self._known) >= WITHIN_MAX:
                self._known = {key: each for key, each in self._known.items() if key[0] is None}
            values = [self.values(label) for label in labels]
            nodes = self._placer.node_snapshot.all if within is None else within.nodes
            paths = {node: tuple([of[node] for of in values]) for node in nodes if all(node in of for of in values)}
            found = self._known[within, labels] = Partition(paths)
        return found

    def values(self, label: str) -> dict[CandidateNode, str]:
        """The nodes that have a value of the level, in name order."""
        self._renew()
        found = self._values.get(label)
        if found is None:
            nodes = self._placer.node_snapshot.all
            found = self._values[label] = _by_label(label, nodes) or _by_attribute(label, nodes)
        return found

    def joined(self, domains: Sequence[TopologyDomain]) -> TopologyDomain:
        """Several domains as one."""
        key = tuple(sorted(domains, key=lambda domain: domain.name))
        found = self._joined.get(key)
        if found is None:
            if len(self._joined) >= JOINED_MAX:
                self._joined.clear()
            name = "+".join(domain.name for domain in key)
            found = self._joined[key] = TopologyDomain(name, [node for domain in domains for node in domain.nodes])
        return found

    def _renew(self) -> None:
        membership = self._placer.node_snapshot.membership
        if self._membership != membership:
            self._membership = membership
            if self._values:
                self._values.clear()
                self._known.clear()
                self._joined.clear()
                self._placer.forget_scored_nodes()


def _by_label(label: str, nodes: Sequence[CandidateNode]) -> dict[CandidateNode, str]:
    return {node: node.info.labels[label] for node in nodes if label in node.info.labels}


def _by_attribute(name: str, nodes: Sequence[CandidateNode]) -> dict[CandidateNode, str]:
    """Nodes whose devices, as far as they have the attribute, all have one value of it: the clique of an NVL72 rack."""
    found: dict[CandidateNode, str] = {}
    for node in nodes:
        values = {value for device in node.devices.devices for _, value in device.values(name)}
        if len(values) == 1:
            found[node] = str(values.pop())
    return found
