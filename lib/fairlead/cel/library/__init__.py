"""The functions that CEL programs may call, one or more libraries a module.

Each module declares `Library` constants at import (types, overload ids, implementations); an Environment is put together from
them (`cel.kubernetes` has those of Kubernetes 1.36). Implementations take and return CEL values (`cel.values`) and raise
EvaluationError. None reads a clock; the time zone database is the only thing outside that one of them reads (`clock`).
"""
