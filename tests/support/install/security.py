"""Which user, groups and capabilities a container gets: Kubernetes' rules over the image's user, as setpriv(1) flags.

Not applied: seccomp and AppArmor profiles, which need a runtime's own. Source: pkg/securitycontext, containerd's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.sandbox.objects import Obj, name_of, spec_of

_DEFAULT = (
    "audit_write chown dac_override fowner fsetid kill mknod net_bind_service net_raw setfcap setgid setpcap setuid"
)
DEFAULT_CAPABILITIES = frozenset([*_DEFAULT.split(), "sys_chroot"])


class SecurityError(ValueError):
    """A container that kubelet would not start. Names the pod and the field."""


def flags(pod: Obj, container: Mapping[str, Any], image_user: str) -> list[str]:
    """Raises SecurityError."""
    of_pod, own = spec_of(pod).get("securityContext") or {}, container.get("securityContext") or {}
    user, _, group = image_user.partition(":")
    settings = {**of_pod, **own}
    uid = int(settings.get("runAsUser", user))
    # Without runAsGroup a given user runs in group 0; the image's own user in the image's.
    gid = int(settings.get("runAsGroup", 0 if "runAsUser" in settings else group or 0))
    if settings.get("runAsNonRoot") and uid == 0:
        raise SecurityError(f"pod {name_of(pod)}: runAsNonRoot: the container would run as root")
    more = {int(each) for each in of_pod.get("supplementalGroups", ())} | {int(of_pod.get("fsGroup", gid))}
    groups = ",".join(str(each) for each in sorted(more))
    made = [f"--reuid={uid}", f"--regid={gid}", f"--groups={groups}", "--inh-caps=-all", "--ambient-caps=-all"]
    if not own.get("privileged"):
        kept = ",".join(f"+{each}" for each in sorted(capabilities(own.get("capabilities") or {})))
        made.append(f"--bounding-set=-all{',' if kept else ''}{kept}")
    if own.get("allowPrivilegeEscalation") is False:
        made.append("--no-new-privs")
    return made


def capabilities(changes: Mapping[str, Any]) -> frozenset[str]:
    """What is left of the runtime's default capabilities after `drop` and `add`."""
    dropped = {each.lower().removeprefix("cap_") for each in changes.get("drop") or ()}
    added = {each.lower().removeprefix("cap_") for each in changes.get("add") or ()}
    return (frozenset() if "all" in dropped else DEFAULT_CAPABILITIES - dropped) | added
