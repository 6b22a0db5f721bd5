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
DRIVER = {
    "fairlead_driver_gpu_sm_active_ratio",
    "fairlead_driver_gpu_tensor_active_ratio",
    "fairlead_driver_gpu_dram_active_ratio",
    "fairlead_driver_gpu_power_limit_watts",
    "fairlead_driver_gpu_throttled",
    "fairlead_driver_gpu_ecc_errors_total",
    "fairlead_driver_gpu_remapped_rows",
    "fairlead_driver_gpu_xids_total",
    "fairlead_driver_gpu_nvlink_active_links",
    "fairlead_driver_gpu_sm_clock_hertz",
    "fairlead_driver_gpu_memory_clock_hertz",
    "fairlead_driver_slices_synced_timestamp_seconds",
}
METRICS = CONTROLLER | DRIVER
