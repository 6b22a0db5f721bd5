"""Whether a gang's devices come from one model: `fairlead.dev/models`, and which parts of a workload choose theirs by themselves.

A model is a GPU product; of MIG devices, one profile on one product. `same` is what counts where nothing is said.
"""

from collections.abc import Mapping
from typing import Final, Literal, cast

from fairlead.api import names

Models = Literal["same", "any"]
DEFAULT: Final[Models] = "same"
_WORKER_GROUPS: Final = (names.RAY_GROUP, names.JOBSET_JOB, names.LWS_GROUP_INDEX)


def models(text: str) -> Models:
    """Raises ValueError."""
    if text not in {"same", "any"}:
        raise ValueError(
            f"{text[:40]!r} is neither 'same' nor 'any': write same for devices of one model, any to mix them"
        )
    return cast("Models", text)


def worker_group(labels: Mapping[str, str]) -> str:
    """The part of its workload that a pod with these labels is of: a RayCluster's group, a JobSet's replicated job, a group of a
    LeaderWorkerSet. Each takes one model, which may be another than that of the others. Empty where there are no parts.
    """
    return next((labels[key] for key in _WORKER_GROUPS if key in labels), "")
