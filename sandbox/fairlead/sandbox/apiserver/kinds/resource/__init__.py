"""resource.k8s.io/v1: the strategies of Dynamic Resource Allocation's kinds, with every limit of the real apiserver.

Enters: claims, templates, slices and classes. Leaves: FieldErrors with the real texts. Entrances: the *Strategy classes.
"""
