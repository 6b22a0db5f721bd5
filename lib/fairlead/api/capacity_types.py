"""The kind of capacity that a node is bought as, from the labels of those that make nodes. Pure.

Sources: Karpenter's and EKS's well-known labels (karpenter.sh/capacity-type: on-demand, spot, reserved;
eks.amazonaws.com/capacityType: ON_DEMAND, SPOT, CAPACITY_BLOCK) and GKE's (cloud.google.com/gke-spot: "true").
"""

from collections.abc import Mapping
from typing import Literal

CapacityType = Literal["on-demand", "spot", "reserved"]

KARPENTER = "karpenter.sh/capacity-type"
EKS = "eks.amazonaws.com/capacityType"
GKE_SPOT = "cloud.google.com/gke-spot"

_KNOWN: Mapping[str, Mapping[str, CapacityType]] = {
    KARPENTER: {"on-demand": "on-demand", "spot": "spot", "reserved": "reserved"},
    EKS: {"ON_DEMAND": "on-demand", "SPOT": "spot", "CAPACITY_BLOCK": "reserved"},
    GKE_SPOT: {"true": "spot"},
}


def capacity_type(labels: Mapping[str, str]) -> CapacityType | None:
    """The capacity type of a node with these labels; None where they do not say, as on a GKE node that is not spot, or a machine that one owns.

    A value that is not known says nothing. Of several labels that say something the first above counts.
    """
    for label, values in _KNOWN.items():
        found = values.get(labels.get(label, ""))
        if found is not None:
            return found
    return None
