"""The admission webhook: reviews objects before the apiserver stores them, by tenancy policy, gang annotations and claims.

In: AdmissionReviews over HTTPS, and watches of the apiserver. Out: a verdict with a patch per review; its certificate Secret and two
webhook configurations. `serve`, `cache`, `certificates` and `registration` do the I/O; `handlers`, `policy`, `claim_names`,
`gangs`, `legacy`, `review` and `objects` are pure functions of one review. Entrances: `app.run`, and `offline.judge` without a cluster.
"""
