"""Which layout of slices the cluster's apiserver accepts."""

from __future__ import annotations

import logging
import re

import msgspec

from fairlead.driver.publish.slices import Layout
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.nulls import Decoder

log = logging.getLogger(__name__)


class _Version(msgspec.Struct, frozen=True):
    major: str
    minor: str


_versions = Decoder(_Version)


async def layout_for(client: Client) -> Layout:
    """Since 1.35 counter sets and devices are in different slices; 1.34 requires them together."""
    try:
        version = _versions.decode(await client.request("GET", "/version"))
        major, minor = int(version.major), int(re.sub(r"\D.*", "", version.minor))
    except (errors.ApiError, msgspec.MsgspecError, ValueError) as error:
        log.warning("the apiserver's version is not known (%s); taking it for 1.35 or later", error)
        return "split"
    return "combined" if (major, minor) < (1, 35) else "split"
