"""Metrics that dashboards and rules ask for, and that no program serves yet. Empty once those programs are merged."""

CONTROLLER = {
    "fairlead_queue_used",
    "fairlead_queue_demand",
    "fairlead_queue_fair_share",
    "fairlead_queue_deserved",
    "fairlead_queue_limit",
    "fairlead_queue_wait_seconds",
    "fairlead_queue_oldest_wait_seconds",
    "fairlead_queue_wait_target_seconds",
    "fairlead_gangs_waiting",
    "fairlead_claim_info",
    "fairlead_cluster_devices",
}
METRICS = CONTROLLER
