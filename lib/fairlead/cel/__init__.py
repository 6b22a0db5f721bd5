"""CEL, the Common Expression Language, as Kubernetes evaluates it: device selectors, admission policies, CRD rules.

Text comes in; out come programs, and of each evaluation a value or an error. `compile_selector` is the entrance for device
selectors (`admit_selector` adds what the API refuses in new ones), `compile` with ADMISSION, RULE or another Environment for
everything else. `DeviceTable` evaluates a selector on many devices at once; `may_select` decides from the text alone whether
a driver's devices can match. Pure: no clock, no I/O. See README.md beside this file.
"""

from fairlead.cel.allowance import allowance
from fairlead.cel.device import DeviceView
from fairlead.cel.devices.columns import DeviceTable, Mask
from fairlead.cel.devices.managed import may_select
from fairlead.cel.devices.reads import Read
from fairlead.cel.devices.selector import (
    COST_MAX,
    Outcome,
    Selector,
    Verdict,
    admit_selector,
    compile_selector,
    load_fault,
)
from fairlead.cel.environment import Environment
from fairlead.cel.errors import AllowanceError, BudgetError, CelError, CompileError, EvaluationError
from fairlead.cel.kubernetes import ADMISSION, DEVICE, RULE, Environments, environments
from fairlead.cel.program import Program, compile  # noqa: A004 - the word of the trade

__all__ = [
    "ADMISSION",
    "COST_MAX",
    "DEVICE",
    "RULE",
    "AllowanceError",
    "BudgetError",
    "CelError",
    "CompileError",
    "DeviceTable",
    "DeviceView",
    "Environment",
    "Environments",
    "EvaluationError",
    "Mask",
    "Outcome",
    "Program",
    "Read",
    "Selector",
    "Verdict",
    "admit_selector",
    "allowance",
    "compile",
    "compile_selector",
    "environments",
    "load_fault",
    "may_select",
]
