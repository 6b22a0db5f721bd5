"""Whether a device of the cluster serves a request, its use aside."""

from __future__ import annotations

from fairlead.api.certificate import DeviceId, Given
from fairlead.cel import CompileError, DeviceView, EvaluationError, compile_selector
from fairlead.evidence.document import Facts
from fairlead.evidence.holdings import Holdings
from fairlead.evidence.node_fit import tolerated
from fairlead.evidence.published import Ask, Device, consumption, covers
from fairlead.kube import resource


class Cluster(Holdings):
    def __init__(self, facts: Facts, given: tuple[Given, ...]) -> None:
        super().__init__(facts, given)
        self.classes = {each.metadata.name: each for each in facts.classes}
        self._matched: dict[tuple[str, DeviceId], bool | None] = {}

    def filters(self, ask: Ask, device: Device) -> set[str]:
        """Why the device does not serve the request: the words of `Filtered`; empty when it may."""
        selectors = {"class": self.classes[ask.device_class_name].spec.selectors, "selector": ask.selectors}
        found = {self.match(s, device, word) for word, several in selectors.items() for s in several}
        taints = [*device.spec.taints, *(rule.spec.taint for rule in self.facts.taint_rules if covers(rule, device))]
        found |= {"taint" for taint in taints if not tolerated(taint, ask.tolerations)}
        takes = consumption(ask, device)
        if takes is None:
            found.add("capacity")
        elif any(value > self.free_capacity(device, name) for name, value in takes.items()):
            found.add("full")
        return found - {""}

    def match(self, selector: resource.DeviceSelector, device: Device, word: str) -> str:
        """`word` where it does not select the device, "error" where it fails on it; else empty."""
        key = (selector.cel.expression if selector.cel else "", device.id)
        if key not in self._matched:
            try:
                self._matched[key] = compile_selector(key[0]).matches(DeviceView.of(device.id[0], device.spec))
            except (CompileError, EvaluationError):
                self._matched[key] = None
        return {True: "", False: word, None: "error"}[self._matched[key]]
