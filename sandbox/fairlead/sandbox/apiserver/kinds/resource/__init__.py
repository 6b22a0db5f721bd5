"""resource.k8s.io/v1: the kinds of Dynamic Resource Allocation, with every limit and format that the real one enforces."""
