"""Which of NVIDIA's driver files a container gets, in the container toolkit's words (NVIDIA_DRIVER_CAPABILITIES). Imports nothing."""

from typing import Literal, get_args

Capability = Literal["compute", "utility", "graphics", "video"]
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
DEFAULT_CAPABILITIES: tuple[Capability, ...] = ("compute", "utility")
