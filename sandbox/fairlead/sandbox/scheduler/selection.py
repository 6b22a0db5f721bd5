"""Whether a CEL expression selects a device, cached per expression and slice version.

The scheduler evaluates the same selectors for every pod, and a slice changes seldom. The language is fairlead.cel's.
Bounded by SLICES_MAX: the results of the oldest slices are dropped first.
"""

from __future__ import annotations

import collections

import msgspec

from fairlead.cel import CompileError, DeviceView, EvaluationError, compile_selector
from fairlead.kube.resource import Device
from fairlead.sandbox.objects import uid_of
from fairlead.sandbox.scheduler.devices import AllocationError
from fairlead.sandbox.scheduler.pools import Candidate

SLICES_MAX = 20_000


class Selection:
    def __init__(self) -> None:
        self._answers: collections.OrderedDict[tuple[str, str], dict[tuple[str, str], bool]] = collections.OrderedDict()
        self._views: dict[tuple[str, str], dict[str, DeviceView]] = {}

    def __call__(self, expression: str, candidate: Candidate) -> bool:
        version = (uid_of(candidate.slice), str(candidate.slice["metadata"].get("resourceVersion", "")))
        answers = self._answers.get(version)
        if answers is None:
            answers = self._answers[version] = {}
            self._views[version] = {}
            while len(self._answers) > SLICES_MAX:
                oldest, _ = self._answers.popitem(last=False)
                del self._views[oldest]
        question = (expression, candidate.key[2])
        known = answers.get(question)
        if known is None:
            known = answers[question] = self._ask(expression, candidate, self._views[version])
        return known

    def _ask(self, expression: str, candidate: Candidate, views: dict[str, DeviceView]) -> bool:
        driver, pool, name = candidate.key
        try:
            view = views.get(name)
            if view is None:
                view = views[name] = DeviceView.of(driver, msgspec.convert(candidate.device, Device))
            return compile_selector(expression).matches(view)
        except (CompileError, EvaluationError) as error:
            raise AllocationError(f"device {driver}/{pool}/{name}: selector {expression!r}: {error}") from error
