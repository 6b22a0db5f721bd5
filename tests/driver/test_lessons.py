"""What hurt other GPU drivers for Kubernetes, and the test that shows that it does not hurt this one.

Each line names the test of this directory that holds a lesson; a name that is gone is a failure. Numbers are those of issues of kubernetes-sigs/dra-driver-nvidia-gpu where nothing else is said. What is the webhook's, the controller's or the
chart's (validation of configs, NVLink-aware choice, admission policies) has its tests there; binding GPUs to vfio and IMEX
domains are not done by this driver.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LESSONS = {
    # -- what is published
    "devices came in the random order of a map (#1358)": "test_slices::test_the_same_inventory_gives_the_same_slices_in_any_order",
    "gpu-10 sorted before gpu-2": "test_slices::test_gpu_2_comes_before_gpu_10",
    "names followed NVML's index, which a restart changes (#427, #563, #624)": "test_nvml::test_a_minor_that_nvml_does_not_tell_is_read_from_the_kernel",
    "all counter sets in one slice, all MIG devices in another: over the limits on 16 GPUs, more so with taints": (
        "test_slices::test_all_placements_of_any_number_of_gpus_keep_the_apis_limits"
    ),
    "a GPU without MIG profiles had an empty counter set, which the API refuses (#1092)": "test_slices::test_a_gpu_without_mig_has_no_counters",
    "a version that is no semantic version crashed the plugin": "test_slices::test_a_value_that_the_api_would_refuse_is_left_out",
    "a query that a GPU does not support failed the node (UMA memory, bus ID)": "test_nvml::test_all_optional_queries_at_once",
    "a partitionable GPU claimed its largest profile's memory": "test_slices::test_a_partitionable_gpu_has_all_its_memory_and_not_its_largest_profiles",
    "memory of a shared GPU that is no whole number of steps was refused": "test_slices::test_memory_that_is_no_whole_number_of_steps_is_rounded_down",
    "a node without GPUs published nothing, and looked like one without a driver (#1008)": "test_nvml::test_a_node_whose_gpus_are_all_with_virtual_machines_publishes_one_empty_slice",
    "GPUs bound to vfio were taken for lost (#1089, #1330)": "test_nvml::test_a_gpu_that_goes_to_a_virtual_machine_is_not_lost_and_not_ours",
    "three ways to publish, one of which forgot the taints": "test_health::test_a_fault_reaches_all_mig_devices_of_the_gpu_and_the_stream",
    "a publication that failed was not tried again": "test_publisher::test_an_error_is_shown_and_tried_again",
    "a field that the apiserver drops was written forever": "test_publisher::test_what_the_apiserver_drops_is_reported_once_and_not_written_forever",
    # -- MIG
    "cleaning up at the start drove A100s into a loop of resets (#883)": "test_nvml::test_polling_and_recovering_never_switch_mig_mode",
    "MIG mode of an Ampere was switched, which needs a reset (#1006, #1018)": "test_backend_contract::test_mig_mode_of_an_ampere_is_not_switched",
    "an Ampere in MIG mode lost the counters that its partitions name": "test_slices::test_ampere_out_of_mig_mode_offers_only_the_gpu_and_in_it_only_partitions",
    "a vGPU guest was offered MIG": "test_nvml::test_a_vgpu_guest_offers_its_gpus_whole_with_dynamic_mig",
    "rolling back half a MIG device was code that never ran (#1452, #1476)": "test_crashes::test_a_retry_after_the_restart_ends_right",
    "a GPU instance without compute instance stayed": "test_nvml::test_a_gpu_instance_without_compute_instance_is_destroyed_too",
    "instance IDs are used again: another's MIG device was taken for ours": "test_prepare::test_what_replaced_the_claims_mig_device_is_left_alone",
    "a taken placement is no 'already exists' but 'insufficient resources'": "test_backend_contract::test_a_taken_placement_is_refused_and_leaves_nothing",
    "a MIG device in use cannot be destroyed, and the claim was forgotten all the same": "test_prepare::test_a_busy_mig_device_fails_unprepare_until_it_is_free",
    "first fit cut up GPUs that a large profile needed (#932, #933)": "test_geometry::test_first_fit_leaves_the_largest_profile_that_any_start_leaves",
    # -- claims
    "one lock of ten seconds around everything": "test_prepare::test_a_slow_gpu_does_not_hold_up_another",
    "a call that hangs hung all claims": "test_service::test_a_gpu_that_hangs_costs_its_claim_an_error_and_no_other_claim_anything",
    "two claims held one GPU (k/k#136269, k/k#141471, dra-example-driver#263)": "test_prepare::test_of_two_claims_at_once_for_one_gpu_exactly_one_gets_it",
    "a claim deleted while prepared leaked, and its GPU was refused to all (#1278)": (
        "test_restarts::test_a_claim_that_was_deleted_by_force_while_the_driver_was_down_is_unprepared"
    ),
    "results and configs of other drivers in a claim failed it (#435, #1327)": "test_prepare::test_results_of_other_drivers_are_skipped",
    "a claim without allocation crashed the plugin": "test_calls::test_a_claim_that_is_not_allocated_is_refused",
    "a share's ID was not handed to kubelet": "test_calls::test_share_ids_are_in_the_answer_where_the_version_has_them",
    "configs were given to a request with adminAccess": "test_prepare::test_admin_access_sets_nothing",
    # -- what is on disk
    "a new field made the records of an older version 'corrupt' (#1080)": "test_checkpoint::test_a_field_of_a_newer_version_is_ignored",
    "a record that could not be read was a crash loop, and silent (#1100, #1259)": "test_operations::test_a_record_that_cannot_be_read_is_an_event_on_the_node",
    "records of an earlier boot were believed (#951, #1066)": "test_restarts::test_after_a_reboot_a_claim_is_prepared_from_the_start",
    "half a file after a power cut": "test_checkpoint::test_a_truncated_file_is_kept_aside_and_reported",
    "a full disk": "test_checkpoint::test_prepare_fails_plainly_and_leaves_nothing",
    # -- CDI
    "a legacy runtime gave the container all GPUs on top (#162, #426)": "test_cdi::test_each_container_gets_the_control_nodes_and_is_kept_from_the_legacy_runtime",
    "MIG capability nodes were missing (#787, #788)": "test_backend_contract::test_a_mig_device_adds_the_capabilities_of_its_two_instances",
    "a stale or missing spec was 'unresolvable' or 'empty edits' (#736, #1144, #1458)": "test_prepare::test_a_cdi_file_that_was_removed_is_written_again",
    "a runtime's cache served the spec of an earlier claim": "test_cdi::test_a_spec_follows_the_specification",
    "a directory in the place of a library or a program was taken for it (#1275)": "test_driverroot::test_a_program_that_is_a_link_is_followed_within_the_root",
    "a driver's root without a shell (#469)": "test_driverroot::test_a_root_without_a_c_library_is_a_place_to_search",
    # -- sharing
    "an MPS daemon was a pod: RBAC, SCCs, pull secrets and scheduling on the way of a claim (#229, #230, #1212)": (
        "test_mps::test_its_daemon_has_its_limits_and_its_gpus_for_itself_and_ends_with_it"
    ),
    "the compute mode stayed EXCLUSIVE_PROCESS": "test_mps::test_a_compute_mode_that_an_administrator_set_is_restored",
    "several users on GPUs before Volta (#974, #1153)": "test_mps::test_several_users_need_a_gpu_that_can_serve_them",
    "the pipe's directory was not there under the driver's root": "test_driverroot::test_an_mps_daemon_of_a_whole_root_has_a_tmp_and_a_shm_that_are_only_its_claims",
    "MPS on a shared GPU": "test_mps::test_what_mps_cannot_do_is_refused_and_leaves_nothing",
    # -- health
    "a benign Xid took the place of a fatal one (#983)": "test_health::test_a_benign_xid_does_not_take_the_place_of_a_severe_one",
    "one lost GPU tainted all": "test_health::test_a_gpu_lost_at_run_time_stays_published_with_a_taint",
    "faults were forgotten at a restart": "test_health::test_it_outlives_a_restart_and_not_a_boot",
    "taints never went (#1455)": "test_health::test_a_reset_clears_what_it_cures",
    "health and dynamic MIG excluded each other (#1164)": "test_health::test_a_fault_reaches_every_placement_of_a_partitionable_gpu",
    "only an administrator's rule evicted": "test_health::test_a_gpu_beyond_a_reset_evicts_its_pods",
    # -- running it
    "an update left a gap in which kubelet had no driver (k/k#129832)": "test_restarts::test_a_rolling_update_leaves_no_moment_without_an_answer",
    "a path of a socket that is too long (k/k 1.37)": "test_registration::test_a_long_pod_uid_is_shortened_to_fit",
    "a process was alive and its sockets were not": "test_registration::test_a_socket_that_was_removed_is_a_reason_to_restart",
    "only successes were counted": "test_operations::test_what_failed_is_counted_too",
    "NVIDIA's driver was replaced under a running plugin (k8s-driver-manager#203)": (
        "test_health::test_hardware_that_fails_every_poll_needs_a_restart_and_one_that_hangs_does_not"
    ),
    "GPU metrics could not be joined with pods (dcgm-exporter#501)": "test_operations::test_metrics_count_claims_and_devices",
}  # fmt: skip


def names_in(module: str) -> set[str]:
    (path,) = HERE.rglob(f"{module}.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_has_a_test_that_holds_it(lesson: str) -> None:
    module, _, name = LESSONS[lesson].partition("::")
    assert name in names_in(module)
