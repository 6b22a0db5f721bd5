"""KAI-Scheduler and Run:ai: Queues of scheduling.run.ai, and the Projects and Departments that Run:ai makes them from.

- resources.gpu: quota is deserved, limit the limit (-1: none), overQuotaWeight the weight, in GPUs or parts of one; so one Flavor
  counts whole GPUs, MIG devices and shared parts by their share. priority is the priority, 100 where there is none.
- A quota of -1 is what the queues below deserve together; of a leaf, nothing.
- A limit of 0, or none at all, lets a queue use nothing beyond its quota, as KAI documents it.
- preemptMinRuntime and reclaimMinRuntime are one minRuntime, the longer.
- A Project is a Queue for its namespace, runai-NAME unless its status says another; its Department the queue above it.

Source: KAI-Scheduler's pages on queues, fairness and min-runtime and its API scheduling.run.ai/v2 (0.20); Run:ai's documentation of
projects and departments.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from fractions import Fraction

from fairlead.api.durations import duration_s
from fairlead.cli.imports.draft import NAMESPACE_LABEL, Draft, DraftQueue, Quota
from fairlead.cli.imports.fields import Api, Fields, Found, note_present, note_unread, objects
from fairlead.cli.imports.kinds import Kind
from fairlead.cli.imports.model import Document, Imported, Source, plain, shown

GROUP = "scheduling.run.ai"
_JOB = "is of one job: jobs are not imported"
API = Api(
    system="KAI/Run:ai",
    versions={
        GROUP: ("v2", "v1", "v2alpha2", "v1alpha2"),
        "run.ai": ("v2", "v1", "v1alpha1"),
        "kai.scheduler": ("v1", "v1alpha1"),
    },
    kinds=("Queue", "Project", "Department"),
    others={
        "PodGroup": _JOB,
        "BindRequest": _JOB,
        "NodePool": "a Queue's quota is of a kind of device (Flavor), not of nodes",
        "SchedulingShard": "one controller decides for all nodes",
        "Config": "configures KAI itself: nothing is written for it",
        "Topology": "a gang names a node label on its pods, as fairlead.dev/topology: required:LABEL",
    },
)
SHARES = Kind(shares=True)
PRIORITY = 100
_UNLIMITED = -1


def read(documents: Iterable[Document]) -> Imported:
    """Raises RefusedError."""
    draft = Draft()
    found = objects(documents, API, draft)
    queues = {each.name: each for each in found if each.kind == "Queue"}
    departments = {each.name: each for each in found if each.kind == "Department"}
    unlimited: dict[str, Fields] = {}
    for each in queues.values():
        _queue(each, queues, draft, unlimited)
    for each in departments.values():
        if each.name in queues:
            draft.note(each.source, "", f"is the Queue {plain(each.name)} for KAI, which is imported", lost=False)
        else:
            _owner(each, draft, unlimited)
    for each in (each for each in found if each.kind == "Project"):
        _project(each, queues, departments, draft, unlimited)
    _settle(unlimited, draft)
    if draft.queues:
        text = "pods name their queue by the label kai.scheduler/queue or runai/queue, which is not read: write fairlead.dev/queue, or a namespaceSelector here"
        draft.note(Source("the input"), "", text)
    return draft.build()


def _queue(each: Found, queues: Mapping[str, Found], draft: Draft, unlimited: dict[str, Fields]) -> None:
    spec, key = each.spec, each.name
    queue = draft.queues[key] = DraftQueue(each.source, each.name, parent_path="spec.parentQueue")
    parent = spec.text("parentQueue")
    if parent is not None and parent not in queues:
        draft.fault(
            each.source,
            "spec.parentQueue",
            f"there is no Queue {shown(parent)}: add it to the files, or remove the field",
        )
    elif parent is not None:
        queue.parent = parent
    priority = spec.whole("priority")
    queue.spec["priority"] = PRIORITY if priority is None else priority
    _min_runtime(spec, queue, draft)
    resources = spec.mapping("resources")
    queue.quotas[SHARES] = _gpu(resources.mapping("gpu"), key, draft, unlimited, names=("quota", "limit"))
    draft.flavor(SHARES, each.source)
    for name in ("cpu", "memory"):
        other = resources.mapping(name)
        bounds = [other.amount(word, most=None, unlimited=True) for word in ("quota", "limit")]
        other.amount("overQuotaWeight", most=None)
        if any(bound is not None and bound > 0 for bound in bounds):
            text = f"{name}: a Queue counts GPUs; bound it with a ResourceQuota"
            draft.note(each.source, other.path, text, queue=key)
        note_unread(draft, key, other)
    if (shown_name := spec.text("displayName")) is not None:
        draft.note(
            each.source,
            "spec.displayName",
            f"{shown(shown_name)}: the Queue is known by its name",
            queue=key,
            lost=False,
        )
    note_unread(draft, key, resources, spec)


def _min_runtime(spec: Fields, queue: DraftQueue, draft: Draft) -> None:
    given: dict[str, tuple[float, str]] = {}
    for name in ("preemptMinRuntime", "reclaimMinRuntime"):
        text = spec.duration(name)
        if text is not None:
            given[name] = (duration_s(text), text)
    if not given:
        return
    longest = max(given.values())
    queue.spec["minRuntime"] = longest[1]
    if len({seconds for seconds, _ in given.values()}) > 1 or len(given) == 1:
        name = min(given, key=lambda name: given[name])
        other = next(each for each in ("preemptMinRuntime", "reclaimMinRuntime") if each != name)
        text = f"minRuntime {longest[1]} protects from eviction within the queue and by other queues alike"
        draft.note(spec.source, spec.at(name if len(given) > 1 else other), text, queue=queue.wanted)


def _settle(unlimited: dict[str, Fields], draft: Draft) -> None:
    """A quota of -1: what the queues below deserve together, so that they keep it; nothing where there are none."""
    below: dict[Hashable, list[Hashable]] = {}
    for key, queue in draft.queues.items():
        below.setdefault(queue.parent, []).append(key)
    for key in _upwards(unlimited, below):
        gpu, quota = unlimited[key], draft.queues[key].quotas[SHARES]
        children = [draft.queues[child].quotas[SHARES].deserved for child in below.get(key, ())]
        quota.deserved = max(quota.deserved, sum(children, Fraction(0)))
        if quota.limit is not None and quota.limit < quota.deserved:
            quota.deserved = quota.limit
        text = f"-1: {float(quota.deserved):g} is written, " + (
            "what the queues below it deserve; write the GPUs of the cluster where it may keep more"
            if children
            else "so it has what is left over and nothing that others cannot take back; write the GPUs of the cluster as deserved"
        )
        draft.note(gpu.source, gpu.at("quota" if gpu.has("quota") else "deserved"), text, queue=key)


def _upwards(keys: Iterable[str], below: Mapping[Hashable, list[Hashable]]) -> list[str]:
    """Each after those below it. Of a cycle, which is refused later, each once."""
    found: dict[Hashable, None] = {}
    seen: set[Hashable] = set()
    rest: list[tuple[Hashable, bool]] = [(key, False) for key in keys]
    while rest:
        key, done = rest.pop()
        if done:
            found[key] = None
        elif key not in seen:
            seen.add(key)
            rest.append((key, True))
            rest += [(child, False) for child in below.get(key, ())]
    wanted = {*keys}
    return [key for key in found if isinstance(key, str) and key in wanted]


def _gpu(gpu: Fields, key: str, draft: Draft, unlimited: dict[str, Fields], *, names: tuple[str, str]) -> Quota:
    """`names` of the guaranteed and of the most GPUs. `unlimited` gets those that have no bound on the former."""
    quota = gpu.amount(names[0], unlimited=True)
    limit = gpu.amount(names[1], unlimited=True)
    weight = gpu.amount("overQuotaWeight", most=1_000_000)
    deserved = Fraction(0) if quota is None else quota
    if deserved == _UNLIMITED:
        deserved = Fraction(0)  # until `_settle` knows what the queues below deserve
        unlimited[key] = gpu
    most: Fraction | None
    if limit == _UNLIMITED:
        most = None
    elif not limit:
        if quota == _UNLIMITED:
            most = None
        else:
            most = deserved
            text = f"is {'absent' if limit is None else '0'}: nothing beyond the quota, so the limit is {float(deserved):g}; write -1 in the source for no limit"
            draft.note(gpu.source, gpu.at(names[1]), text, queue=key, lost=False)
    else:
        most = limit
        if limit < deserved:
            text = f"{float(deserved):g} is more than the limit, which a Queue must not have: {float(limit):g}, the limit, is written as deserved"
            draft.note(gpu.source, gpu.at(names[0]), text, queue=key, lost=False)
            deserved = limit
    note_unread(draft, key, gpu)
    return Quota(deserved=deserved, limit=most, weight=Fraction(0) if weight is None else weight)


def _owner(each: Found, draft: Draft, unlimited: dict[str, Fields]) -> DraftQueue:
    """A Department or Project of Run:ai: flat fields of GPUs, or resources per node pool."""
    spec, key = each.spec, each.name
    queue = draft.queues[key] = DraftQueue(each.source, each.name, parent_path="spec.department")
    draft.flavor(SHARES, each.source)
    pools = [*spec.mappings("resources"), *spec.mappings("nodePoolsResources")]
    found: list[Quota] = []
    for pool in pools:
        gpu = pool.mapping("gpu")
        found.append(
            _gpu(gpu, key, draft, unlimited, names=("deserved", "maxAllowed" if gpu.has("maxAllowed") else "limit"))
        )
        for name in ("cpu", "memory"):
            if pool.mapping(name):
                draft.note(
                    each.source, pool.at(name), f"{name}: a Queue counts GPUs; bound it with a ResourceQuota", queue=key
                )
        pool.ignore("cpu", "memory", "nodePool", "id")
        note_unread(draft, key, pool)
    if pools:
        for quota in found[1:]:
            found[0].add(quota)
        if len(pools) > 1:
            text = f"{len(pools)} node pools: a Queue's quota is of a kind of device, not of nodes: they are added"
            draft.note(each.source, pools[0].path, text, queue=key)
    else:
        found.append(_flat(spec))
    queue.quotas[SHARES] = found[0]
    note_present(
        draft,
        key,
        spec,
        {
            "interactiveJobTimeLimitSecs": "activeDeadlineSeconds of a Job ends it",
            "nodeAffinityInteractive": "a TenancyPolicy with nodeAffinity binds namespaces to nodes",
            "nodeAffinityTrain": "a TenancyPolicy with nodeAffinity binds namespaces to nodes",
            "defaultNodePools": "a claim says which devices would do",
        },
    )
    spec.ignore("department")
    note_unread(draft, key, spec)
    return queue


def _flat(spec: Fields) -> Quota:
    deserved = spec.amount("deservedGpus") or Fraction(0)
    limit = spec.amount("maxAllowedGpus", unlimited=True)
    weight = spec.amount("gpuOverQuotaWeight", most=1_000_000)
    if limit is not None and 0 <= limit < deserved:
        spec.fault(
            "maxAllowedGpus",
            f"{float(limit):g} is less than the deservedGpus {float(deserved):g}: raise it, or write -1 for no limit",
        )
    # By default a project's part of what is left over is proportional to its quota.
    return Quota(
        deserved=deserved,
        limit=None if limit in (None, _UNLIMITED) else limit,
        weight=deserved if weight is None else weight,
    )


def _project(
    each: Found,
    queues: Mapping[str, Found],
    departments: Mapping[str, Found],
    draft: Draft,
    unlimited: dict[str, Fields],
) -> None:
    namespace = each.fields.mapping("status").text("namespace") or f"runai-{each.name}"
    selector = {"matchLabels": {NAMESPACE_LABEL: namespace}}
    if each.name in queues:
        draft.note(
            each.source, "", f"is the Queue {plain(each.name)} for KAI, which is imported", lost=False, queue=each.name
        )
        draft.queues[each.name].spec["namespaceSelector"] = selector
        return
    if each.name in departments:
        draft.fault(each.source, "metadata.name", "is a Department's, too, and queues have no namespace: rename one")
        return
    queue = _owner(each, draft, unlimited)
    spec = each.spec
    department = spec.text("department")
    if department is not None and department in departments:
        queue.parent = department
    elif department is not None:
        draft.fault(
            each.source,
            "spec.department",
            f"there is no Department {shown(department)}: add it to the files, or remove the field",
        )
    queue.spec["namespaceSelector"] = selector
