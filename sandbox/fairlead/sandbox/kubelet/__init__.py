"""A kubelet per simulated node: its Node object, the plugin protocols, claims, CDI, and the life of its pods."""
