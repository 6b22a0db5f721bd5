"""The cases of `examples/` that the demo shows, and what must be true of each when it has run.

Shared by the demo and the e2e suite: one statement of what Fairlead promises, checked against a `History`, hence against
what the API showed. A check returns sentences; an empty list means that the promise was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fairlead.api.drivers import attributes_of
from fairlead.cli.demo.history import GangKey, GangRecord, History, PodRecord

H100S = 16
"""Of the cluster that the cases need."""
ISLAND_GPUS = 4
"""That one case wants on one NVLink island."""

# What a check may ask of a device: (pool, device) → its attributes as published, by bare name.
Attributes = Callable[[str, str], dict[str, object]]
Promises = Callable[[History, Attributes], Iterator[str]]


@dataclass(frozen=True)
class Case:
    """One example: its folder, its gangs with their number of pods, and its promises.

    `files` are applied one after the other, where the order matters: the next when all gangs seen so far run. In a
    `disturbed` case pods may be evicted and recreated. `driver`: whose devices it needs besides the GPUs.
    """

    folder: str
    title: str
    gangs: tuple[tuple[GangKey, int], ...]
    promises: Promises
    files: tuple[str, ...] = ()
    disturbed: bool = False
    driver: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """What to apply, in order: paths below examples/."""
        return tuple(f"{self.folder}/{file}" for file in self.files) or (self.folder,)

    def running(self, history: History) -> bool:
        """Every gang of the case that has pods runs whole: the next file may come."""
        seen = [(gang, pods) for key, pods in self.gangs if (gang := history.find(*key)) is not None]
        return bool(seen) and all(sum(pod.phase == "Running" for pod in gang.pods) >= pods for gang, pods in seen)

    def finished(self, history: History) -> bool:
        """Every pod of every gang has been seen to end."""
        return all(self._ended(history, key) >= pods for key, pods in self.gangs)

    def failures(self, history: History, attributes: Attributes) -> list[str]:
        """What was not as promised."""
        if self.disturbed:
            return list(self.promises(history, attributes))
        found = [problem for key, pods in self.gangs for problem in _ran_whole(history, key, pods)]
        return found or list(self.promises(history, attributes))

    def _ended(self, history: History, key: GangKey) -> int:
        gang = history.find(*key)
        if gang is None:
            return 0
        return sum(pod.phase == "Succeeded" if self.disturbed else pod.finished_s is not None for pod in gang.pods)


@dataclass(frozen=True)
class Service(Case):
    """A Deployment of one replica: its pods do not end. Its last file rolls out another version, and it is there until it is deleted."""

    namespace: str = ""
    deployment: str = ""

    def pods(self, history: History) -> list[PodRecord]:
        """The pods of all versions, the oldest first."""
        found = [
            pod
            for pod in history.pods.values()
            if pod.namespace == self.namespace and pod.name.startswith(f"{self.deployment}-")
        ]
        return sorted(found, key=lambda pod: (pod.created_s, pod.name))

    def running(self, history: History) -> bool:
        return any(pod.phase == "Running" for pod in self.pods(history))

    def finished(self, history: History) -> bool:
        """The pod of the last version runs, and no other holds a device."""
        pods = self.pods(history)
        old, new = pods[:-1], pods[-1:]
        return len(pods) >= len(self.files) and new[0].phase == "Running" and not any(map(history.holds, old))


def _ran_whole(history: History, key: GangKey, pods: int) -> Iterator[str]:
    gang = history.find(*key)
    if gang is None:
        yield f"gang {key.namespace}/{key.name}: no pod of it was seen"
        return
    if len(gang.pods) != pods:
        yield f"gang {key.namespace}/{key.name}: {len(gang.pods)} pods were seen instead of {pods}"
    for pod in gang.pods:
        if pod.phase != "Succeeded":
            yield f"pod {pod.namespace}/{pod.name}: ended as {pod.phase} instead of Succeeded"
        if not history.devices(pod):
            yield f"pod {pod.namespace}/{pod.name}: no device was allocated to it"


def _gang(history: History, namespace: str, name: str) -> GangRecord:
    gang = history.find(namespace, name)
    assert gang is not None, "checked by _ran_whole"
    return gang


def _one_h100(history: History, attributes: Attributes) -> Iterator[str]:
    (pod,) = _gang(history, "vision", "notebook").pods
    yield from _count(history, pod, 1)
    yield from _are_h100s(history, attributes, pod)


def _count(history: History, pod: PodRecord, wanted: int) -> Iterator[str]:
    found = len(history.devices(pod))
    if found != wanted:
        yield f"pod {pod.name} got {found} devices instead of {wanted}"


def _are_h100s(history: History, attributes: Attributes, pod: PodRecord) -> Iterator[str]:
    for use in history.devices(pod):
        product = attributes(use.pool, use.device).get("productName")
        if "H100" not in str(product):
            yield f"pod {pod.name} got {use.pool}/{use.device}, a {product}, instead of an H100"


def _indexed_job(history: History, attributes: Attributes) -> Iterator[str]:
    gang = _gang(history, "language", "pretrain")
    products = {
        str(attributes(use.pool, use.device).get("productName")) for pod in gang.pods for use in history.devices(pod)
    }
    if len(products) != 1:
        yield f"pretrain got devices of {len(products)} products instead of one: {', '.join(sorted(products))}"
    for pod in gang.pods:
        yield from _count(history, pod, 2)
        for use in history.devices(pod):
            kind = attributes(use.pool, use.device).get("type")
            if kind != "gpu":
                yield f"pod {pod.name} got {use.pool}/{use.device}, a {kind}, instead of a whole GPU"
    yield from _started_together(gang)


def _two_gangs(history: History, attributes: Attributes) -> Iterator[str]:
    gangs = [_gang(history, "vision", "resnet"), _gang(history, "language", "bert")]
    for gang in gangs:
        yield from _started_together(gang)
        for pod in gang.pods:
            yield from _are_h100s(history, attributes, pod)
    held = sorted((gang.held, gang) for gang in gangs if gang.held) if all(gang.held for gang in gangs) else []
    if len(held) != 2:
        yield "the two gangs did not both run"
        return
    (_, running), ((bound_s, _), waiting) = held
    still = sum(pod.finished_s is None or pod.finished_s > bound_s for pod in running.lasting)
    if still + len(waiting.lasting) > H100S:
        yield (
            f"gang {waiting.key.name} had pods bound while {still} pods of {running.key.name} ran: all of it cannot fit on "
            f"{H100S} H100s"
        )
    if not waiting.reasons:
        yield f"gang {waiting.key.name} waited without a reason on its Gang object"
    elif not any(any(char.isdigit() for char in reason) for reason in waiting.reasons):
        yield f"gang {waiting.key.name} waited with a reason that names no figure: {waiting.reasons[-1]}"


def _started_together(gang: GangRecord) -> Iterator[str]:
    """All members were bound before any ended: a gang ran whole, not piece by piece."""
    bound = [pod.bound_s for pod in gang.pods if pod.bound_s is not None]
    ended = [pod.finished_s for pod in gang.pods if pod.finished_s is not None]
    if bound and ended and max(bound) > min(ended):
        yield f"gang {gang.key.name}: a member was bound only after another had ended"


def _one_island(history: History, attributes: Attributes) -> Iterator[str]:
    (pod,) = _gang(history, "vision", "tensor-parallel").pods
    yield from _count(history, pod, ISLAND_GPUS)
    islands = {(use.pool, _island(use.driver, attributes(use.pool, use.device))) for use in history.devices(pod)}
    if len(islands) != 1 or None in {island for _, island in islands}:
        yield f"tensor-parallel's devices are not on one NVLink island: {sorted(map(str, islands))}"


def _island(driver: str, attributes: dict[str, object]) -> object:
    return attributes.get(attributes_of(driver).island(ISLAND_GPUS).rpartition("/")[2])


def _mig(history: History, attributes: Attributes) -> Iterator[str]:
    (pod,) = _gang(history, "vision", "tiny").pods
    for use in history.devices(pod):
        found = attributes(use.pool, use.device)
        if (found.get("type"), found.get("profile")) != ("mig", "1g.10gb"):
            yield f"tiny got {use.pool}/{use.device}, a {found.get('type')} {found.get('profile')}, instead of 1g.10gb"


def _fallback(history: History, attributes: Attributes) -> Iterator[str]:
    (pod,) = _gang(history, "language", "evaluate").pods
    for use in history.devices(pod):
        product = str(attributes(use.pool, use.device).get("productName"))
        if use.request != "gpu/a100" or "A100" not in product:
            yield f"evaluate got {use.pool}/{use.device}, a {product}, for {use.request} instead of an A100 for gpu/a100"


def _reclaimed(history: History, attributes: Attributes) -> Iterator[str]:
    owner = history.find("language", "finetune")
    borrowers = [gang for name in ("segment", "detect") if (gang := history.find("vision", name)) is not None]
    if owner is None or len(borrowers) != 2:
        yield "a gang of the three was not seen"
        return
    yield from _ran_whole(history, owner.key, 8)
    evicted = [gang for gang in borrowers if len(gang.pods) > 8]
    if len(evicted) != 1:
        yield f"{len(evicted)} of vision's two gangs were evicted instead of 1"
        return
    (victim,), (other,) = evicted, (gang for gang in borrowers if gang not in evicted)
    yield from _ran_whole(history, other.key, 8)
    gone = [pod for pod in victim.pods if pod.phase != "Succeeded"]
    ran = [pod for pod in victim.pods if pod.phase == "Succeeded"]  # those that had ended before the eviction, too
    again = [pod for pod in ran if gone and pod.created_s > max(each.created_s for each in gone)]
    if not gone or len(again) != len(gone) or len(ran) != 8:
        yield f"gang {victim.key.name}: {len(gone)} pods evicted and {len(again)} recreated and run: not each of 8 once"
        return
    unannounced = [pod.name for pod in gone if not pod.evict_at]
    if unannounced:
        yield f"gang {victim.key.name}: {len(unannounced)} pods were evicted without notice: {unannounced[0]}"
    if not any("reclaimed for gang language/finetune" in message for message in victim.evictions):
        yield f"gang {victim.key.name}: its Gang object did not name the gang it was reclaimed for: {victim.evictions}"
    ends = [gang.held[1] for gang in (owner, other) if gang.held is not None]
    bound = [pod.bound_s for pod in again if pod.bound_s is not None]
    if ends and bound and min(bound) < min(ends):
        yield f"gang {victim.key.name} ran again before finetune or {other.key.name} had ended: there is no room for three"


def _rolled_out(history: History, attributes: Attributes) -> Iterator[str]:
    pods = DEPLOYMENT.pods(history)
    if len(pods) != 2:
        yield f"{len(pods)} pods of chat were seen instead of one of each version"
    for pod in pods:
        products = [str(attributes(use.pool, use.device).get("productName")) for use in history.devices(pod)]
        if len(products) != 1 or "L40S" not in products[0]:
            yield f"pod {pod.name} got {', '.join(products) or 'no device'} instead of one L40S"


def _on_the_same_rails(history: History, attributes: Attributes) -> Iterator[str]:
    by_pod = {
        pod.name: sorted(str(attributes(use.pool, use.device).get("rail")) for use in history.devices(pod))
        for pod in _gang(history, "vision", "all-reduce").pods
    }
    if any(len(rails) != 4 for rails in by_pod.values()) or len({tuple(rails) for rails in by_pod.values()}) != 1:
        yield f"the pods' rails are {by_pod} instead of the same four"


def _beside_each_other(name: str, alike: Mapping[str, tuple[str, str]]) -> Promises:
    """Of each of these attributes the devices of two requests have one value; no NIC is in two claims."""

    def promises(history: History, attributes: Attributes) -> Iterator[str]:
        gang = _gang(history, "vision", name)
        for pod in gang.pods:
            uses = {use.request: attributes(use.pool, use.device) for use in history.devices(pod)}
            for attribute, requests in alike.items():
                found = {uses.get(request, {}).get(attribute) for request in requests}
                if len(found) != 1 or None in found:
                    listed = " and ".join(requests)
                    yield f"pod {pod.name} got {listed} of {attribute} {sorted(map(str, found))} instead of one"
            if (nic := uses.get("nic", {})).get("rdma") is not True:
                yield f"pod {pod.name} got the NIC {nic.get('ifName')}, which has no RDMA"
        nics = [(use.pool, use.device) for pod in gang.pods for use in history.devices(pod) if use.request == "nic"]
        if len(set(nics)) != len(gang.pods):
            yield f"{len(gang.pods)} pods that ran together got {len(set(nics))} NICs"
        yield from _started_together(gang)

    return promises


def _with_its_coordinator(history: History, attributes: Attributes) -> Iterator[str]:
    gang = _gang(history, "language", "self-play")
    if len(gang.pods) != 5:
        yield f"{len(gang.pods)} pods of self-play were seen instead of a coordinator and 4 workers"
    workers = [pod for pod in gang.pods if "-workers-" in pod.name]
    for pod in gang.pods:
        yield from _count(history, pod, 1 if pod in workers else 0)
        if pod.phase != "Succeeded":
            yield f"pod {pod.name}: ended as {pod.phase} instead of Succeeded"
        if pod not in workers and pod.bound_s is not None and pod.bound_s < max(each.created_s for each in workers):
            yield f"pod {pod.name} was bound before all of its workers were there"
    yield from _started_together(gang)


def _one(namespace: str, name: str, pods: int = 1) -> tuple[GangKey, int]:
    return GangKey(namespace, name), pods


ONE_GPU = Case("01-one-gpu", "one H100 with at least 40Gi, by CEL", (_one("vision", "notebook"),), _one_h100)
INDEXED_JOB = Case(
    "02-indexed-job",
    "a Job of 4 pods with nvidia.com/gpu: 2 as one gang, on one of the products that could serve it",
    (_one("language", "pretrain", 4),),
    _indexed_job,
)
TWO_GANGS = Case(
    "03-two-gangs",
    "two gangs of 12 that want the same 16 H100s",
    (_one("vision", "resnet", 12), _one("language", "bert", 12)),
    _two_gangs,
)
ONE_ISLAND = Case("04-nvlink-island", "4 GPUs on one NVLink island", (_one("vision", "tensor-parallel"),), _one_island)
MIG = Case("05-mig", "nvidia.com/mig-1g.10gb: 1 from an A100", (_one("vision", "tiny"),), _mig)
FALLBACK = Case("06-first-available", "an H200, or else an A100", (_one("language", "evaluate"),), _fallback)

RECLAIM = Case(
    "07-reclaim",
    "borrowed H100s are reclaimed by their owner",
    (_one("vision", "segment", 8), _one("vision", "detect", 8), _one("language", "finetune", 8)),
    _reclaimed,
    files=("borrow.yaml", "owner.yaml"),
    disturbed=True,
)

DEPLOYMENT = Service(
    "21-deployment",
    "a Deployment, then its next version: the old pod gives its GPU to the new one",
    (),
    _rolled_out,
    files=("deployment.yaml", "rollout.yaml"),
    disturbed=True,
    namespace="language",
    deployment="chat",
)

RAILS = Case("22-rails", "half a node each, on the same rails", (_one("vision", "all-reduce", 2),), _on_the_same_rails)
GPU_AND_NIC = Case(
    "23-gpu-and-nic",
    "a GPU and the RDMA NIC under its PCIe root, in one claim",
    (_one("vision", "rdma-training", 4),),
    _beside_each_other("rdma-training", {"pcieRoot": ("gpu", "nic")}),
    driver="dra.net",
)
GPU_NIC_CPU = Case(
    "26-gpu-nic-cpu",
    "a GPU, the NIC under its PCIe root and CPUs of its NUMA node, in one claim",
    (_one("vision", "aligned", 8),),
    _beside_each_other("aligned", {"pcieRoot": ("gpu", "nic"), "numaNode": ("gpu", "cpus")}),
    driver="dra.cpu",
)

COORDINATOR = Case(
    "25-members-without-gpus",
    "a coordinator without GPUs waits and starts with its four workers",
    (_one("language", "self-play", 5),),
    _with_its_coordinator,
    files=("job.yaml",),
    disturbed=True,
)

CASES = (
    ONE_GPU,
    INDEXED_JOB,
    TWO_GANGS,
    ONE_ISLAND,
    MIG,
    FALLBACK,
    RECLAIM,
    DEPLOYMENT,
    RAILS,
    GPU_AND_NIC,
    COORDINATOR,
    GPU_NIC_CPU,
)
# What the demo shows. The two gangs need all H100s, so they run when the others have ended; the borrowers need all of them too.
WAVES = ((INDEXED_JOB, ONE_ISLAND, MIG, DEPLOYMENT), (TWO_GANGS,), (RECLAIM,))
NAMESPACES = ("vision", "language")
