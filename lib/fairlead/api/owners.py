"""Which queue system owns a namespace, and which systems lay claim to a pod beside Fairlead.

Two systems that each decide when a pod starts can wait for each other, or count one pod in two quotas. The namespace's label
`fairlead.dev/queue-system` names the one that decides; without it Fairlead takes the pods that ask for its devices, and a pod that
another system holds as well waits for both. A system lays claim to a pod by its scheduling gate, its label or its scheduler's name.
Example: Namespace ml with the label fairlead.dev/queue-system: kueue is Kueue's: Kueue decides by its quota when a pod starts, then
Fairlead decides where. Volcano, KAI-Scheduler and YuniKorn place pods themselves, which does not go together with that.

Source: kueue ff69552e `apis/kueue/v1beta2` and `pkg/controller/jobs/pod/constants`, KAI-Scheduler d5bc503a `deployments`, yunikorn-k8shim
`pkg/common/constants`, volcano `pkg/apis/scheduling`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fairlead.api import names

FAIRLEAD, KUEUE = "fairlead", "kueue"
SYSTEMS: Mapping[str, str] = {
    FAIRLEAD: "Fairlead",
    KUEUE: "Kueue",
    "volcano": "Volcano",
    "kai": "KAI-Scheduler",
    "yunikorn": "YuniKorn",
}
"""What each value of the label means."""
SCHEDULERS: Mapping[str, str] = {"volcano": "volcano", "kai-scheduler": "kai", "yunikorn": "yunikorn"}
"""The system that a pod's `schedulerName` means."""
GATES = (names.KUEUE_GATE, names.KUEUE_TOPOLOGY_GATE)


class UnknownSystemError(ValueError):
    """The label has a value that names no system."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """A system that lays claim to a pod; `shown_by` is a clause: the field and what it says."""

    system: str
    shown_by: str

    @property
    def title(self) -> str:
        return SYSTEMS[self.system]


def owner(labels: Mapping[str, str]) -> str | None:
    """The system that a namespace with these labels says it is of; None where it says nothing. Raises UnknownSystemError."""
    value = labels.get(names.QUEUE_SYSTEM)
    if value is not None and value not in SYSTEMS:
        raise UnknownSystemError(
            f"metadata.labels[{names.QUEUE_SYSTEM}]: {value!r} is no queue system: write one of {', '.join(SYSTEMS)}"
        )
    return value


def claimants(labels: Mapping[str, str], gates: Iterable[str], scheduler: str = "") -> Iterator[Claimant]:
    """The other systems that lay claim to a pod, each once."""
    gate = next((each for each in gates if each in GATES), None)
    if gate is not None:
        yield Claimant(KUEUE, f"spec.schedulingGates has {gate}")
    elif labels.get(names.KUEUE_MANAGED) == "true":
        yield Claimant(KUEUE, f"metadata.labels[{names.KUEUE_MANAGED}] is true")
    if scheduler in SCHEDULERS:
        yield Claimant(SCHEDULERS[scheduler], f"spec.schedulerName is {scheduler}")


def decision(namespace: str, owned_by: str | None, found: Claimant | None) -> str:
    """Who decides on the pods of a namespace, as one sentence with the next step; "" where it is Fairlead alone."""
    label = f"label {names.QUEUE_SYSTEM}"
    if owned_by == KUEUE and (found is None or found.system == KUEUE):
        return f"Namespace {namespace} is Kueue's ({label}): Kueue decides by its quota when the pods start, Fairlead where"
    if owned_by is None:
        if found is None:
            return ""
        return (
            f"{found.title} lays claim to the pods, too ({found.shown_by}), and nothing says whose Namespace {namespace} is: "
            f"write its {label}: {FAIRLEAD} or {found.system}"
        )
    if owned_by == FAIRLEAD:
        if found is None:
            return ""
        return f"Namespace {namespace} is Fairlead's ({label}), but {found.title} lays claim to the pods, too ({found.shown_by}): {_let_go(found)}"
    if owned_by == KUEUE and found is not None:
        return f"Namespace {namespace} is Kueue's ({label}), but {found.title} lays claim to the pods ({found.shown_by}): {_let_go(found)}"
    return (
        f"Namespace {namespace} is {SYSTEMS[owned_by]}'s ({label}), which cannot allocate Fairlead's devices: use a namespace of "
        f"Fairlead's for these pods, or write {names.QUEUE_SYSTEM}: {FAIRLEAD}"
    )


def refuses(owned_by: str | None, found: Claimant | None) -> bool:
    """Whether a new pod that asks for Fairlead's devices contradicts what its namespace says."""
    if owned_by is None:
        return False
    if owned_by in {FAIRLEAD, KUEUE}:
        return found is not None and found.system != owned_by
    return True


def _let_go(found: Claimant) -> str:
    if found.system == KUEUE:
        return "take the namespace out of Kueue's managedJobsNamespaceSelector and Kueue's labels off the pods, and create them again"
    return "remove schedulerName, and create them again"
