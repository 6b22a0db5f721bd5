"""jupyterhub_config.py: the same with the limit of the device plugin."""

c = get_config()  # noqa: F821

c.KubeSpawner.namespace = "language"
c.KubeSpawner.image = "quay.io/jupyter/pytorch-notebook:cuda12-2025-10-20"
c.KubeSpawner.extra_resource_limits = {"nvidia.com/gpu": "1"}
c.KubeSpawner.start_timeout = 3600
