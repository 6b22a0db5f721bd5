"""What users and administrators write, and the names that Fairlead and Kubernetes share. Data and pure functions only.

In come JSON objects and pod metadata as the API server holds them; out come validated models (Queue, Flavor, TenancyPolicy,
Gang, GpuConfig, MigDeviceConfig) and the Intent of a pod, or an error that lists every fault with its path.
`CustomResource.read` is for what users write and refuses unknown fields, `CustomResource.stored` is for what the cluster holds
and passes them over. The CRDs in manifests/crds are generated from the models (`crds`). Every other package may import this one.
"""
