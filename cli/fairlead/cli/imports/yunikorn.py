"""YuniKorn: the queues of queues.yaml, or of the ConfigMap that holds it, become Queues named by their path below root.

- guaranteed is deserved, max the limit. root is no Queue: it has no quota, in YuniKorn neither.
- The placement rule `tag` with value namespace makes a queue that of the namespace of its name; `fixed`, where it comes first,
  makes its queue that of all pods that name none.
- nodesortpolicy is the strategy: binpacking pack, fair spread.

Source: YuniKorn's pages on the queue configuration, placement rules, ACLs, and sorting and preemption (1.9).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fairlead.api.object_names import is_dns_label
from fairlead.cli.imports.draft import NAMESPACE_LABEL, Draft, DraftQueue, Quota
from fairlead.cli.imports.fields import Api, Fields, note_unread, objects
from fairlead.cli.imports.kinds import Kind, kind_of
from fairlead.cli.imports.model import Document, Imported, RefusedError, Source, documents, plain, shown

CONFIG_MAP = "yunikorn-configs"
API = Api(system="YuniKorn", versions={"": ("v1",)}, kinds=("ConfigMap",), others={})
_KEY = re.compile(r"(?:(?P<group>[\w.-]+)\.)?queues\.yaml")
_NAME = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}")
_QUANTITY = re.compile(r"[0-9]+\s*(m|k|[MGTPE]|[KMGTPE]i)?")
_STRATEGIES = {"binpacking": "pack", "fair": "spread"}
ROOT = "root"
VCORE = "vcore"  # its word for cpu
Path = tuple[str, ...]
"""Of a queue: the partition, then the names below root."""
PROPERTIES = {
    "application.sort.priority": "a gang of higher priority goes first in its queue",
    "priority.policy": "queues compare by their own priority, gangs by theirs within a queue",
    "priority.offset": "a Queue's priority is not added to its gangs'; write spec.priority for its turn at what is left over",
    "preemption.delay": "a gang may take back what its queue deserves at once; minRuntime protects what runs",
    "quota.preemption.delay": "nothing is evicted because a limit was lowered",
    "application.unschedasks.backoff": "a gang that does not fit is looked at again when something changes",
    "application.unschedasks.backoff.delay": "a gang that does not fit is looked at again when something changes",
}


@dataclass(slots=True)
class _Partition:
    name: str
    fields: Fields
    strategy: str | None


def read(found: Iterable[Document]) -> Imported:
    """Raises RefusedError."""
    draft = Draft()
    partitions: list[Fields] = []
    for document in _configurations(found, draft):
        source = Source(document.where, "queues.yaml")
        fields = Fields(document.value, "", source, draft.faults)
        fields.ignore("checksum")
        partitions += fields.mappings("partitions")
        note_unread(draft, None, fields)
    if not partitions and not draft.faults:
        text = f"holds no partitions: name a queues.yaml, the ConfigMap {CONFIG_MAP}, or another system with --from"
        draft.fault(Source("the input"), "", text)
    names: dict[str, Fields] = {}
    for fields in partitions:
        name = (fields.needed("name") or "").lower()
        if name in names:
            fields.fault(
                "name", f"{shown(name)} is also {names[name].source.where}, {names[name].path}: remove one of the two"
            )
            continue
        names[name] = fields
    for name, fields in names.items():
        _partition(_Partition(name, fields, None), draft, alone=len(names) == 1)
    return draft.build()


def _configurations(found: Iterable[Document], draft: Draft) -> Iterator[Document]:
    """Documents that are a configuration, and those inside ConfigMaps."""
    rest: list[Document] = []
    for document in found:
        if isinstance(document.value, dict) and "kind" not in document.value and "apiVersion" not in document.value:
            yield document
        else:
            rest.append(document)
    for each in objects(rest, API, draft) if rest else ():
        data = each.fields.mapping("data")
        inside = [key for key in data.names() if _KEY.fullmatch(key)]
        if not inside:
            data.fault("queues.yaml", f"is missing: name the ConfigMap {CONFIG_MAP}, or write the key")
        for key in inside:
            text = data.text(key)
            try:
                yield from documents(text or "", f"{each.source} data[{key}]")
            except RefusedError as error:
                draft.faults += error.faults


def _partition(partition: _Partition, draft: Draft, *, alone: bool) -> None:
    fields = partition.fields
    _sorting(partition, draft)
    preemption = fields.mapping("preemption")
    if preemption.flag("enabled") is False:
        draft.note(
            fields.source,
            preemption.at("enabled"),
            "false: a Queue takes back what it deserves from those that borrow it",
        )
    if preemption.flag("quotapreemptionenabled"):
        draft.note(
            fields.source, preemption.at("quotapreemptionenabled"), "nothing is evicted because a limit was lowered"
        )
    if fields.mapping("usergroupresolver"):
        draft.note(fields.source, fields.at("usergroupresolver"), "Fairlead has no groups of users")
    fields.ignore("usergroupresolver")
    if not alone:
        text = f"{shown(partition.name)}: partitions divide nodes, which Queues do not: its queues are a tree of their own; bind their namespaces to nodes with a TenancyPolicy"
        draft.note(fields.source, fields.at("name"), text)
    prefix: Path = () if alone else (partition.name,)
    _limits(fields, draft, None)
    tops = fields.mappings("queues")
    if len(tops) == 1 and (tops[0].text("name") or "").lower() == ROOT:
        root = tops[0]
        if root.mapping("resources"):
            root.fault("resources", "root has no resources in YuniKorn: write them at the queues below it")
        _properties(root, None, draft, partition)
        _limits(root, draft, None)
        _people(root, None, draft)
        root.ignore("parent", "resources", "maxapplications")
        tops = root.mappings("queues")
        note_unread(draft, None, root)
    written = _queues(tops, prefix, draft, partition)
    _placement(fields, prefix, written, draft)
    note_unread(draft, None, fields, preemption)


def _sorting(partition: _Partition, draft: Draft) -> None:
    policy = partition.fields.mapping("nodesortpolicy")
    kind = policy.text("type")
    partition.strategy = _STRATEGIES.get(kind or "")
    if kind is not None and partition.strategy is None:
        policy.fault("type", f"{shown(kind)} is none of {', '.join(_STRATEGIES)}: write one of these")
    if policy.mapping("resourceweights"):
        draft.note(policy.source, policy.at("resourceweights"), "nodes are chosen by their devices")
    note_unread(draft, None, policy)


def _queues(tops: list[Fields], prefix: Path, draft: Draft, partition: _Partition) -> list[Path]:
    """Writes a queue for each, and for those below it; returns their paths, parents first."""
    written: list[Path] = []
    rest: list[tuple[Fields, Path, Path | None]] = [(fields, prefix, None) for fields in reversed(tops)]
    while rest:
        fields, above, parent = rest.pop()
        name = (fields.needed("name") or "").lower()
        if not name:
            continue
        path = (*above, name)
        dotted = ".".join(path)
        source = Source(fields.source.where, "queue", plain(f"root.{dotted}"))
        below = Fields(fields._value, fields.path, source, draft.faults)  # noqa: SLF001 - the same fields, by a better name
        below.ignore("name")
        if not _NAME.fullmatch(name):
            below.fault("name", f"{shown(name)} is no name of a queue: use letters, digits and _:#/@-, at most 64")
        if path in draft.queues:
            below.fault(
                "name", f"{shown(name)} is also at {draft.queues[path].source.where}, with the same parent: rename one"
            )
            continue
        queue = draft.queues[path] = DraftQueue(source, dotted, parent, below.path)
        queue.quotas = _quotas(below, path, draft)
        if partition.strategy is not None:
            queue.spec["strategy"] = partition.strategy
        _properties(below, queue, draft, partition, path)
        _limits(below, draft, path)
        _people(below, path, draft)
        below.flag("parent")
        if below.whole("maxapplications"):
            draft.note(source, below.at("maxapplications"), "a Queue bounds devices, not jobs", queue=path)
        if below.mapping("childtemplate"):
            draft.note(source, below.at("childtemplate"), "Queues are not made by placement", queue=path)
        below.ignore("childtemplate")
        rest += [(child, path, path) for child in reversed(below.mappings("queues"))]
        note_unread(draft, path, below)
        written.append(path)
    return written


def _quotas(fields: Fields, path: Path, draft: Draft) -> dict[Kind, Quota]:
    resources = fields.mapping("resources")
    found: dict[Kind, Quota] = {}
    others: dict[str, str] = {}
    for word in ("guaranteed", "max"):
        amounts = resources.mapping(word)
        for name in amounts.names():
            kind = kind_of("cpu" if name == VCORE else name)
            value = amounts.raw(name)
            if isinstance(value, str) and not _QUANTITY.fullmatch(value.strip()):
                amounts.fault(
                    name, f"{shown(value)} is no quantity: write digits with an optional suffix, such as 8 or 64Gi"
                )
                continue
            if kind is None:
                others.setdefault(name, amounts.at(name))
                continue
            amount = amounts.amount(name, most=kind.most)
            if amount is None:
                continue
            draft.flavor(kind, fields.source)
            quota = found.setdefault(kind, Quota())
            if word == "max":
                quota.limit = amount
            else:
                quota.deserved = amount
    draft.note_others(fields.source, others, path)
    note_unread(draft, path, resources)
    return found


def _properties(
    fields: Fields, queue: DraftQueue | None, draft: Draft, partition: _Partition, path: Path | None = None
) -> None:
    properties = fields.mapping("properties")
    for name in properties.names():
        value = properties.text(name)
        if value is None:
            continue
        text = PROPERTIES.get(name)
        if name == "application.sort.policy":
            text = None if value == "fifo" else f"{plain(value)}: gangs of a queue go by priority, then age"
        elif name == "preemption.policy":
            text = _preemption(value, queue)
        elif text is None:
            text = f"{shown(value)} is not known, or has no equal"
        if text is not None:
            draft.note(fields.source, properties.at(name), text, queue=path)


def _preemption(value: str, queue: DraftQueue | None) -> str | None:
    if value == "default":
        return None
    if value == "disabled" and queue is not None:
        queue.spec["preemption"] = "Never"
        return "disabled is written as preemption: Never, within the queue; other queues take back from it what they deserve"
    return f"{plain(value)}: a Queue takes back what it deserves from any other"


def _limits(fields: Fields, draft: Draft, path: Path | None) -> None:
    for limit in fields.mappings("limits"):
        who = [*limit.texts("users"), *(f"group {name}" for name in limit.texts("groups"))]
        most = limit.mapping("maxresources")
        for name in most.names():
            most.amount(name, most=None)
        text = f"limits of users and groups ({shown(', '.join(who))}): write a Queue for each below this one, or count by fairlead cost --by user"
        draft.note(fields.source, limit.path, text, queue=path)


def _people(fields: Fields, path: Path | None, draft: Draft) -> None:
    for name in ("submitacl", "adminacl"):
        value = fields.text(name)
        if value is not None and not (name == "submitacl" and value.strip() == "*"):
            text = f"{shown(value)}: who may use a Queue is said by its namespaceSelector, who may change it by RBAC"
            draft.note(fields.source, fields.at(name), text, queue=path)


def _placement(fields: Fields, prefix: Path, written: list[Path], draft: Draft) -> None:
    """Rules in their order; the first one that places a pod counts."""
    parents = {draft.queues[path].parent for path in written}
    leaves = [path for path in written if path not in parents]
    placed = False
    for rule in fields.mappings("placementrules"):
        name = (rule.text("name") or "").lower()
        value = rule.text("value") or ""
        above = _parent_of(rule.mapping("parent"), prefix)
        filtered = bool(rule.mapping("filter"))
        if rule.flag("create"):
            text = "queues are not made by placement: write a Queue for each namespace or user that needs one"
            draft.note(fields.source, rule.at("create"), text)
        if name == "provided" and not filtered:
            continue
        if name == "tag" and value == "namespace" and above is not None and not filtered:
            for path in leaves:
                if path[:-1] == above and is_dns_label(path[-1]) and "namespaceSelector" not in draft.queues[path].spec:
                    draft.queues[path].spec["namespaceSelector"] = {"matchLabels": {NAMESPACE_LABEL: path[-1]}}
            placed = True
            continue
        target = _path(value, prefix, above)
        if name == "fixed" and target in leaves and not placed and not filtered:
            draft.queues[target].spec["namespaceSelector"] = {}
            placed = True
            continue
        if name == "fixed" and target is not None and target not in draft.queues and not rule.raw("create"):
            rule.fault("value", f"there is no queue {shown(value)}: write it, or name one that exists")
            continue
        text = f"{plain(name)} {plain(value)}".strip()
        draft.note(
            fields.source,
            rule.path,
            f"the rule {text}: pods name their queue with fairlead.dev/queue, or a Queue selects their namespace",
        )


def _parent_of(rule: Fields, prefix: Path) -> Path | None:
    """The queue that a rule's parent rule names; None where that is not one."""
    if not rule:
        return prefix
    above = _parent_of(rule.mapping("parent"), prefix)
    if (rule.text("name") or "").lower() != "fixed" or above is None:
        return None
    return _path(rule.text("value") or "", prefix, above)


def _path(value: str, prefix: Path, above: Path | None) -> Path | None:
    names = tuple(value.lower().split(".")) if value else ()
    if not names:
        return None
    if names[0] == ROOT:
        return (*prefix, *names[1:])
    return None if above is None else (*above, *names)
