"""docker/kubernetes.yaml and the Jobs that Prefect makes of docker/kubernetes-job.json."""

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prefect.utilities.templating import apply_values, find_placeholders

from flows.worktree import git
from tests.docker.tools import DOCKER, ROOT, run

VERSION = "1.32"
TEMPLATE = json.loads((DOCKER / "kubernetes-job.json").read_text())
VARIABLES = TEMPLATE["variables"]["properties"]
RESOURCES = list(yaml.safe_load_all((DOCKER / "kubernetes.yaml").read_text()))
IN_POD = "parallelism", "completions"  # for Prefect's worker; Kubernetes ignores them there


def job(**chosen: Any) -> dict[str, Any]:
    """Return the Job that Prefect's worker makes, without what the worker adds by itself."""
    defaults = {key: each["default"] for key, each in VARIABLES.items() if "default" in each}
    given = {"command": ["prefect", "flow-run", "execute"], "env": [{"name": "A", "value": "1"}]}
    manifest = TEMPLATE["job_configuration"]["job_manifest"]
    return apply_values(manifest, defaults | given | chosen)  # type: ignore[no-any-return]


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def valid(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, VERSION, strict=True)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: each["metadata"]["name"])
def test_resources_follow_the_schema(resource: dict[str, Any]) -> None:
    valid(resource)


def test_the_job_of_a_retraining_follows_the_schema() -> None:
    manifest = job(gpus=4)
    assert [pod(manifest).pop(key) for key in IN_POD] == [1, 1]
    valid(manifest)
    [container] = pod(manifest)["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4


def test_every_variable_is_used_and_every_placeholder_is_known() -> None:
    used = {each.name for each in find_placeholders(TEMPLATE["job_configuration"])}
    assert used == VARIABLES.keys()


def test_jobs_use_the_claims_and_the_secret_of_the_resources() -> None:
    claims = {each["metadata"]["name"] for each in RESOURCES if "Claim" in each["kind"]}
    deploy = RESOURCES[-1]
    for manifest in job(), deploy:
        volumes = [each.get("persistentVolumeClaim", {}) for each in pod(manifest)["volumes"]]
        assert {each["claimName"] for each in volumes if each} <= claims
    [ours], [theirs] = pod(job())["containers"], pod(deploy)["containers"]
    [pull] = pod(job())["initContainers"]
    for key in "envFrom", "image", "securityContext":
        assert ours[key] == theirs[key] == pull[key]
    assert ours["volumeMounts"][0] == theirs["volumeMounts"][0] == pull["volumeMounts"][0]
    assert pod(job())["securityContext"] == pod(deploy)["securityContext"]


def test_models_are_read_only() -> None:
    [container] = pod(job())["containers"]
    [models] = [each for each in container["volumeMounts"] if each["mountPath"] == "/models"]
    assert models["readOnly"]


def test_the_deploying_job_creates_the_pool_of_prefect_yaml() -> None:
    [container] = pod(RESOURCES[-1])["containers"]
    script = container["args"][-1]
    deployed = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    pools = {each["name"]: each["work_pool"]["name"] for each in deployed}
    [name], [pool] = re.findall(r"deploy --name (\w+)", script), re.findall(r"create (\w+)", script)
    assert pools[name] == pool
    [template] = re.findall(r"--base-job-template (\S+)", script)
    assert (ROOT / template).exists()


def test_the_checkout_gets_new_commits_and_pushes_branches_with_the_token(tmp_path: Path) -> None:
    author, upstream, checkout = (tmp_path / name for name in ("author", "upstream.git", "citer"))
    for made in author, checkout:
        made.mkdir()
    git("init", "--quiet", folder=author)
    commit(author)
    git("clone", "--quiet", "--bare", str(author), str(upstream))
    [deploy] = pod(RESOURCES[-1])["containers"]
    clones = deploy["args"][-1].partition("prefect ")[0]
    clones = clones.replace("https://git.example.com/citer.git", str(upstream))
    for _ in range(2):  # the Job may be repeated
        run("sh", "-ec", f"cd {checkout}\n{clones}")
    commit(author)
    git("push", "--quiet", str(upstream), "HEAD", folder=author)
    [pull] = pod(job())["initContainers"]
    run("sh", "-ec", f'cd {checkout}; "$@"', "sh", *pull["args"])
    assert git("rev-parse", "HEAD", folder=checkout) == git("rev-parse", "HEAD", folder=author)
    assert git("config", "--local", "remote.pushDefault", folder=checkout) == "origin"
    asked = f"cd {checkout}; echo url=https://git.example.com | git credential fill"
    answered = run("sh", "-c", asked, GIT_TOKEN="a-b_c", GIT_TERMINAL_PROMPT="0")
    assert "password=a-b_c" in answered.splitlines()


def commit(folder: Path) -> None:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    git(*author, "commit", "--quiet", "--allow-empty", "-m", "Go on", folder=folder)
