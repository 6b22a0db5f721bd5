"""Node profiles: the GPUs of a node as a YAML file, read for simulation and written by `fairlead record`.

Enters: the name of a bundled profile or the path of a file; or an Inventory to record. Leaves: a NodeProfile and its
GPUs. The bundled profiles lie beside the modules, the tables of MIG sizes under mig/. `load`, `gpus`
and `mig_tables` are the entrances.
"""

from fairlead.driver.backend.profiles.loading import ProfileError, gpus, known, load, mig_tables

__all__ = ["ProfileError", "gpus", "known", "load", "mig_tables"]
