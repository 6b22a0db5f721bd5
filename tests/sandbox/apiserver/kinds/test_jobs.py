"""Jobs: the selector that the server makes, and what may change while one runs."""

from __future__ import annotations

from typing import Any

from tests.support.apiserver.served import Served

JOBS = "/apis/batch/v1/namespaces/ml/jobs"


def job(**spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    return {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}, **spec}}


async def test_the_pods_of_a_job_are_found_by_its_uid(api: Served) -> None:
    _, made = await api.post(JOBS, job())
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    assert (made["spec"]["completions"], made["spec"]["parallelism"], made["spec"]["backoffLimit"]) == (1, 1, 6)


async def test_the_template_is_immutable_but_parallelism_is_not(api: Served) -> None:
    await api.post(JOBS, job())
    assert (await api.patch(f"{JOBS}/j", {"spec": {"parallelism": 3}}))[0] == 200
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "y"}]}}}}
    code, answer = await api.patch(f"{JOBS}/j", image, "strategic")
    assert (code, answer["details"]["causes"][0]["field"]) == (422, "spec.template")
    code, answer = await api.patch(f"{JOBS}/j", {"spec": {"completions": 3}})
    assert (code, answer["details"]["causes"][0]["field"]) == (422, "spec.completions")


async def test_a_suspended_job_may_still_be_told_where_to_run(api: Served) -> None:
    await api.post(JOBS, job(suspend=True))
    where = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    code, changed = await api.patch(f"{JOBS}/j", where)
    assert code == 200
    assert changed["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}


async def test_an_elastic_indexed_job_changes_both_numbers_together(api: Served) -> None:
    await api.post(JOBS, job(completionMode="Indexed", parallelism=2, completions=2))
    assert (await api.patch(f"{JOBS}/j", {"spec": {"parallelism": 4, "completions": 4}}))[0] == 200
    assert (await api.patch(f"{JOBS}/j", {"spec": {"completions": 5}}))[0] == 422
