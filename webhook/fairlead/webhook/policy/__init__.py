"""What is refused, whatever policies say (`refusals`), and TenancyPolicies: which govern a review, what their rules find, their defaults.

In: the policies of a namespace, and a pod, workload or claim. Out: Findings, which `policies.apply_findings` turns into a denial,
warnings or audit annotations by each policy's mode; and defaults in the patch. Pure.
"""
