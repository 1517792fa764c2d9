"""docker/compose.yaml, as Docker Compose itself reads it."""

import json
import re
from typing import Any

import pytest

from tests.docker.tools import DOCKER, on_linux, run

pytestmark = on_linux

CHECKOUT = "/citer"
ROOT_FIRST = {"postgres", "s3"}  # their images start as root, read the secret and change the user


def parsed(**env: str) -> dict[str, Any]:
    """Return all services and volumes with defaults filled in, as `docker compose` starts them."""
    options = ("--file", DOCKER / "compose.yaml", "--env-file", "/dev/null", "--profile", "*")
    text = run("docker-compose", *options, "config", "--format", "json", **env)
    read: dict[str, Any] = json.loads(text)
    return read


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return parsed()["services"]  # type: ignore[no-any-return]


def test_only_optional_services_have_a_profile(services: dict[str, Any]) -> None:
    profiles = {name: each["profiles"] for name, each in services.items() if "profiles" in each}
    assert profiles == {"serve": ["serve"], "vllm": ["vllm"], "s3": ["s3"]}
    assert services.keys() - profiles == {"postgres", "prefect", "mlflow", "deploy", "worker"}


def test_services_restart_and_the_one_that_ends_does_so_after_a_failure_only(
    services: dict[str, Any],
) -> None:
    restarts = {name: each["restart"] for name, each in services.items()}
    assert restarts.pop("deploy") == "on-failure:3"
    assert set(restarts.values()) == {"unless-stopped"}


def test_services_wait_for_the_health_of_others(services: dict[str, Any]) -> None:
    assert {name for name in services if "healthcheck" not in services[name]} == {"deploy"}
    for each in services.values():
        for name, awaited in each.get("depends_on", {}).items():
            ends = name == "deploy"
            expected = "service_completed_successfully" if ends else "service_healthy"
            assert awaited["condition"] == expected
    assert [name for name in services if "depends_on" not in services[name]] == ["postgres", "s3"]


def test_the_user_of_the_environment_writes_into_the_checkout() -> None:
    for env, user in ({}, "1000:1000"), ({"CITER_UID": "7", "CITER_GID": "8"}, "7:8"):
        users = {name: each.get("user") for name, each in parsed(**env)["services"].items()}
        assert {name for name in users if users[name] is None} == ROOT_FIRST
        assert {users[name] for name in users.keys() - ROOT_FIRST} == {user}


def test_services_that_start_as_root_see_no_folder_of_the_host(services: dict[str, Any]) -> None:
    for name in ROOT_FIRST:
        mounted = [each for each in services[name]["volumes"] if each["type"] == "bind"]
        assert all(each["read_only"] for each in mounted)


def test_images_are_pinned(services: dict[str, Any]) -> None:
    for each in services.values():
        assert re.search(r":\d+\.\d+", each["image"]), each["image"]


def test_models_are_read_only_and_the_folder_is_not_created(services: dict[str, Any]) -> None:
    users = [each for each in services.values() if mount(each, CHECKOUT)]
    assert len(users) == 4
    for each in users:
        models = mount(each, "/models")
        assert models["read_only"]
        assert not models["bind"].get("create_host_path")


def mount(service: dict[str, Any], target: str) -> dict[str, Any]:
    return next((each for each in service.get("volumes", []) if each["target"] == target), {})


def test_retrainings_and_servers_have_shared_memory_and_a_gpu_each() -> None:
    for env, gpu, other in ({}, "0", "1"), ({"CITER_GPU": "2", "CITER_SERVING_GPU": "3"}, "2", "3"):
        services = parsed(**env)["services"]
        for name, expected in ("worker", gpu), ("serve", other), ("vllm", other):
            [device] = services[name]["deploy"]["resources"]["reservations"]["devices"]
            assert (device["driver"], device["device_ids"]) == ("nvidia", [expected])
            assert int(services[name]["shm_size"]) >= 2**30


def test_ports_are_open_on_this_machine_only(services: dict[str, Any]) -> None:
    published = [port for each in services.values() for port in each.get("ports", [])]
    assert len({port["published"] for port in published}) == 4
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}


def test_passwords_are_read_from_secrets(services: dict[str, Any]) -> None:
    for each in services.values():
        given = {secret["target"] for secret in each.get("secrets", [])}
        for key, value in each.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|KEYS?$|KEYS?_FILE", key):
                assert value in given, key


def test_no_file_has_an_address_with_a_password() -> None:
    for path in DOCKER.glob("*.*"):
        assert not re.search(r"://[^/\s]*:[^/\s]*@", path.read_text()), path


def test_secrets_are_no_part_of_git_or_of_an_image() -> None:
    for secret in parsed()["secrets"].values():
        assert run("git", "check-ignore", secret["file"])
    ignored = (DOCKER.parent / ".dockerignore").read_text().splitlines()
    assert ignored.index("docker/secrets") > ignored.index("!docker")
