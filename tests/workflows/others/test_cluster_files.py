"""The examples of clusters are what Ray and KubeRay take, and the commands in them are ours."""

from __future__ import annotations

import shlex
from importlib import resources

import yaml

from workflows.command_line.arguments import StudyArguments, parse_request

FOLDER = resources.files("workflows") / "clusters"
# Fields of KubeRay's API group ray.io/v1, with the types that its page has; a pod template's are Kubernetes' own.
JOB = {"entrypoint": str, "shutdownAfterJobFinishes": bool, "backoffLimit": int, "rayClusterSpec": dict}
CLUSTER = {"rayVersion": str, "enableInTreeAutoscaling": bool, "headGroupSpec": dict, "workerGroupSpecs": list}
HEAD = {"rayStartParams": dict, "template": dict}
WORKERS = HEAD | {"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int}
CONTAINER = {"name": str, "image": str, "resources": dict, "envFrom": list}


def fields(found, expected):
    """A mapping whose keys are known and whose values are of their types."""
    assert found.keys() <= expected.keys(), found.keys() - expected.keys()
    for name, value in found.items():
        assert type(value) is expected[name], name
    return found


def test_rays_own_check_takes_the_cluster():
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(yaml.safe_load((FOLDER / "cluster.yaml").read_text()))
    validate_config(prepared)
    workers = prepared["available_node_types"]["local.cluster.node"]
    assert prepared["max_workers"] == workers["min_workers"] == 2
    # Whoever reaches the head needs the token, on every node.
    starts = [*prepared["head_start_ray_commands"], *prepared["worker_start_ray_commands"]]
    starts = [command for command in starts if "ray start" in command]
    assert len(starts) == 2 and all(command.startswith("RAY_AUTH_MODE=token ") for command in starts)
    assert "~/.ray/auth_token" in prepared["file_mounts"]


def test_the_job_has_kuberays_fields_and_its_command_is_a_study():
    import ray

    body = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
    assert (body["apiVersion"], body["kind"]) == ("ray.io/v1", "RayJob")
    assert body.keys() == {"apiVersion", "kind", "metadata", "spec"}
    job = fields(body["spec"], JOB)
    cluster = fields(job["rayClusterSpec"], CLUSTER)
    assert cluster["rayVersion"] == ray.__version__
    groups = [fields(cluster["headGroupSpec"], HEAD), *(fields(g, WORKERS) for g in cluster["workerGroupSpecs"])]
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        fields(container, CONTAINER)
        assert container["resources"]["requests"] == container["resources"]["limits"]
    python, switch, module, *flags = shlex.split(job["entrypoint"])
    assert (python, switch, module) == ("python", "-m", "workflows.sweep")
    request = parse_request("fnbandit sweep", flags, lists=True, kind=StudyArguments)
    assert len(request.points) == 60
    assert request.arguments.settings.out == "s3://my-bucket/my-sweep"
