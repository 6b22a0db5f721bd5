"""Which pods of its owner a gang waits for: `fairlead.dev/members`.

`all`: also those that ask for no device, such as the head of a RayCluster or the launcher of an MPIJob. `devices`, what counts where nothing is
said: only those that ask for some; the others start at once.
"""

from typing import Literal, cast

Members = Literal["all", "devices"]


def members(text: str) -> Members:
    """Raises ValueError."""
    if text not in {"all", "devices"}:
        raise ValueError(
            f"{text[:40]!r} is neither 'all' nor 'devices': write all where pods without devices wait with the others, devices where they do not"
        )
    return cast("Members", text)
