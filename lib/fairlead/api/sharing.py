"""What cannot be of a device that claims share: judged alike when a claim is written (webhook) and when it is prepared (driver). Pure.

Each says what is wrong and the way out, to be put behind the field; None where nothing is. The webhook judges by what a claim asks for, the
driver by the devices that it got.
Example: a share of 20Gi and a limit of 30Gi are "30Gi for a program is more than the share that request 'gpu' asks for (20Gi); …".
"""

from fairlead.api.config import GpuSharing, MigSharing

_ONE_MIG_DEVICE = "CUDA shows a program one MIG device only, also the MPS daemon, which therefore serves one; make a claim of each MIG device"
"""Source: NVIDIA MIG User Guide, device enumeration and MPS."""


def several_mig_devices(count: int, shown: str) -> str | None:
    """Of one claim under MPS, whose devices are MIG devices; `shown` are these in words."""
    return f"'MPS' over {shown}: {_ONE_MIG_DEVICE}" if count > 1 else None


def time_sliced_share(sharing: GpuSharing | MigSharing, *, gpu: str, holder: str) -> str | None:
    """Of a part of a GPU: the length of time slices is the whole GPU's, and they limit no memory. `holder`: "this claim has a share"."""
    if sharing.strategy != "TimeSlicing":
        return None
    return (
        f"{sharing.strategy!r} would change {gpu} for the other claims that share it, and {holder}; write MPS, which limits this "
        "claim alone, or ask for all of its memory"
    )


def limit_above_share(limit_bytes: int, share_bytes: int, *, limit: str, share: str, of: str) -> str | None:
    """Of the memory that a program may have; `limit` and `share` as they are shown, `of` says whose share."""
    if limit_bytes <= share_bytes:
        return None
    return (
        f"{limit} for a program is more than the share {of} ({share}); ask for a larger share, or write a smaller limit"
    )
