"""CustomResourceDefinitions: kinds that are added at run time, with structural schemas, CEL rules and printer columns.

Enters: CRD objects and objects of their kinds. Leaves: Kinds in the registry, pruned, defaulted and validated objects.
Entrances: `strategy.CrdStrategy` for definitions, `custom.kinds_of` for the kinds that one defines.
"""
