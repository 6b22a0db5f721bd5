"""The two webhook configurations by which the apiserver sends objects for review, and where.

In: the webhook's address, caBundle, drivers and policies. Out: a MutatingWebhookConfiguration and a ValidatingWebhookConfiguration,
written when the webhook starts and repaired when they change. `configurations` is pure; entrance: `registrar.ensure`.
"""
