"""The gang of a pod, or of the pods of a template, as the manifest asks for it.

In: raw pods and pod templates, with what the gang's existing members say. Out: an intent with faults and warnings, and changes
to the patch: annotations copied to the templates (`propagation`), other systems' suspension and scheduler replaced
(`other_systems`), and what only Fairlead writes taken off or refused (`marks`). Pure. Entrance: `pod_gang.resolve`
for pods; workloads combine the modules themselves.
"""
