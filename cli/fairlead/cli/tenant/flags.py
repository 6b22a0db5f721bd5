"""From the flags of `fairlead tenant create` to a tenant's description. Pure.

Each flag's text is read here; what the values may be is the description's to say (`fairlead.api.tenant`), and `named` puts the flag before
its faults. Raises `FlagError` with flag, value and next step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fairlead.api.base import ManifestError

FLAGS: Final = {
    "name": "NAME",
    "namespaces": "--namespace",
    "namespaceLabels": "--namespace-label",
    "queues": "--queue",
    "admins": "--admins",
    "members": "--members",
    "quota.gpus": "--gpus",
    "quota.claims": "--claims",
    "quota.pods": "--pods",
    "quota.cpu": "--cpu",
    "quota.memory": "--memory",
    "network.egress": "--egress",
    "network.ingress": "--ingress",
}


class FlagError(ValueError):
    def __init__(self, flag: str, text: str) -> None:
        super().__init__(text)
        self.flag = flag


def named(error: ManifestError) -> list[str]:
    """Its faults, each with the flag that the field comes from."""
    lines = []
    for fault in error.faults:
        path = re.match(r"[A-Za-z.]*", fault)
        field = path.group() if path else ""
        flag = next((FLAGS[each] for each in sorted(FLAGS, reverse=True) if field.startswith(each)), "")
        lines.append(f"{flag}: {fault}" if flag else fault)
    return lines


def pairs(flag: str, given: Iterable[str], example: str) -> dict[str, str]:
    """`KEY=VALUE` each; a key given twice is refused."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise FlagError(flag, f"{text!r} is not KEY=VALUE: write it as {example}")
        if key in found:
            raise FlagError(flag, f"{key!r} is given twice, {found[key]!r} and {value!r}: keep one")
        found[key] = value
    return found


def counts(flag: str, given: Iterable[str], example: str) -> dict[str, int]:
    """`KEY=N` each."""
    found = {}
    for key, value in pairs(flag, given, example).items():
        if not (value.isascii() and value.isdigit()):
            raise FlagError(flag, f"{key}={value}: {value!r} is no number of devices: write it as {example}")
        found[key] = int(value)
    return found


def queues(
    given: Sequence[str],
    *,
    tenant: str,
    existing: bool,
    parent: str | None,
    deserved: Sequence[str],
    limit: Sequence[str],
) -> list[dict[str, Any]]:
    """The queues: `NAME` or `NAME=NAMESPACE,…` each; quota is `FLAVOR=N`, of one of several queues `QUEUE/FLAVOR=N`."""
    found: dict[str, dict[str, Any]] = {}
    for text in given or ([tenant] if existing or parent or deserved or limit else ()):
        name, equals, listed = text.partition("=")
        queue: dict[str, Any] = {"name": name}
        if equals:
            queue["namespaces"] = [each for each in listed.split(",") if each]
        if existing:
            queue["create"] = False
        if parent:
            queue["parent"] = parent
        if name in found:
            raise FlagError("--queue", f"{name!r} is given twice: list its namespaces in one, as {name}=a,b")
        found[name] = queue
    for flag, field, amounts in (("--deserved", "deserved", deserved), ("--limit", "limit", limit)):
        for key, value in pairs(flag, amounts, "h100=8").items():
            name, slash, flavor = key.rpartition("/")
            if not slash and len(found) > 1:
                raise FlagError(flag, f"{key}={value}: there are {len(found)} queues: write QUEUE/{key}={value}")
            if slash and name not in found:
                raise FlagError(flag, f"{key}={value}: {name!r} is none of the queues ({', '.join(found)}): name one")
            quota = found[name if slash else next(iter(found))].setdefault("flavors", [])
            _entry(quota, flavor)[field] = int(value) if value.isdigit() else value
    return list(found.values())


def _entry(quota: list[dict[str, Any]], flavor: str) -> dict[str, Any]:
    for each in quota:
        if each["flavor"] == flavor:
            return each
    quota.append({"flavor": flavor})
    return quota[-1]


def peers(flag: str, given: Iterable[str]) -> list[dict[str, Any]]:
    """`CIDR` or `namespace:NAME`, each optionally with `=PORT,…`, and `/UDP` after the ports."""
    found = []
    for text in given:
        where, equals, ports = text.partition("=")
        kind, colon, name = where.partition(":")
        peer: dict[str, Any] = {"namespace": name} if colon and kind == "namespace" else {"cidr": where}
        if equals:
            ports, slash, protocol = ports.partition("/")
            if not re.fullmatch(r"[0-9]+(,[0-9]+)*", ports):
                raise FlagError(
                    flag, f"{text!r}: {ports!r} are no ports: write {where}=443, or leave = away for all ports"
                )
            peer["ports"] = [int(each) for each in ports.split(",")]
            if slash:
                peer["protocol"] = protocol
        found.append(peer)
    return found


def description(**fields: Any) -> dict[str, Any]:
    """The fields that were given."""
    return {key: value for key, each in fields.items() if (value := _given(each)) not in (None, {}, [])}


def _given(value: Any) -> Any:
    return (
        description(**value) if isinstance(value, Mapping) and any(each is None for each in value.values()) else value
    )
