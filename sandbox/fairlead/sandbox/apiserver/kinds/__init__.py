"""The kinds that the apiserver serves: their schema, defaults, validation and what a write may change.

Enters: objects as dicts. Leaves: the same dicts decoded and defaulted, FieldErrors, warnings, table cells; no HTTP.
`base` is the interface to the generic half; `catalogue.kinds()` lists the built-in kinds; custom ones come from `crds`.
"""
