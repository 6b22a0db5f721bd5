"""jupyterhub_config.py: each user's server holds one H100, by the claim template of claim.yaml."""

c = get_config()  # noqa: F821

c.KubeSpawner.namespace = "language"
c.KubeSpawner.image = "quay.io/jupyter/pytorch-notebook:cuda12-2025-10-20"
c.KubeSpawner.extra_pod_config = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "notebook-gpu"}]}
c.KubeSpawner.extra_container_config = {"resources": {"claims": [{"name": "gpu"}]}}
# Waiting for a GPU counts: after 60 seconds, the default, the hub would delete the pod and tell its user that the spawn failed.
c.KubeSpawner.start_timeout = 3600
