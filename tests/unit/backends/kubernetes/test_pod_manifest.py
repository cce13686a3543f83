"""The manifest of a pod, and how the operator's own manifest is merged into it."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from llm_sandbox_mcp.backends.kubernetes.loosening import loosened, rebound, unlimited
from llm_sandbox_mcp.backends.kubernetes.manifest import PodRecipe, manifest, merged
from llm_sandbox_mcp.backends.kubernetes.pod_manifest import mounted
from llm_sandbox_mcp.backends.layout import alias_beside
from llm_sandbox_mcp.base.errors import ProfileError
from llm_sandbox_mcp.profile.profile import Profile, load_profile
from tests.engines import table

RECIPE = PodRecipe(
    name="sandbox-1",
    image="image",
    command=("/bin/sh", "-c", "agent"),
    labels={"llm-sandbox-mcp.server": "1"},
    folders={"/sandbox": 100, "/home": 100, "/tmp": 100},
    memory=1 << 27,
    cpus=0.5,
    reserved=0.1,
    user=123_456,
    pull="IfNotPresent",
)


def with_own(own: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = merged(manifest(RECIPE), own)
    return result


def profile_with(manifest: Any) -> Profile:
    return load_profile("kubernetes", {"kubernetes": {"pod_manifest": manifest}})


def test_a_pod_of_ours_has_no_weaker_restrictions() -> None:
    assert [*loosened(manifest(RECIPE))] == []


def test_a_pod_has_its_limits_and_reserves_only_a_share_of_the_processors() -> None:
    container = manifest(RECIPE)["spec"]["containers"][0]
    assert container["resources"] == {
        "limits": {"cpu": "500m", "memory": str(1 << 27)},
        "requests": {"cpu": "50m", "memory": str(1 << 27)},
    }


def test_a_pod_with_a_network_has_the_label_for_it_and_a_name_server() -> None:
    closed, opened = manifest(RECIPE), manifest(replace(RECIPE, network=True))
    assert opened["metadata"]["labels"] == {"llm-sandbox-mcp.server": "1", "llm-sandbox-mcp.network": "open"}
    assert closed["metadata"]["labels"] == {"llm-sandbox-mcp.server": "1"}
    assert "dnsPolicy" not in opened["spec"]
    assert [*loosened(opened)] == []


def test_the_pod_settings_of_the_profile_are_in_the_manifest() -> None:
    recipe = replace(
        RECIPE,
        runtime_class="gvisor",
        node_selector={"pool": "sandboxes"},
        tolerations=({"key": "sandboxes", "operator": "Exists"},),
        pull_secrets=("registry",),
        annotations={"owner": "a"},
        pull="Always",
    )
    made = manifest(recipe)
    assert made["metadata"]["annotations"] == {"owner": "a"}
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    expected = {
        "runtimeClassName": "gvisor",
        "nodeSelector": {"pool": "sandboxes"},
        "tolerations": [{"key": "sandboxes", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
    }
    assert {key: made["spec"][key] for key in expected} == expected
    assert not {*expected} & {*manifest(RECIPE)["spec"]}


def test_every_folder_is_in_memory_and_has_a_size() -> None:
    spec = manifest(RECIPE)["spec"]
    sizes = {volume["name"]: volume["emptyDir"] for volume in spec["volumes"]}
    for mount in spec["containers"][0]["volumeMounts"]:
        assert sizes[mount["name"]]["medium"] == "Memory"
        assert int(sizes[mount["name"]]["sizeLimit"]) > 0


def test_lists_are_merged_by_the_names_of_their_entries() -> None:
    own = {
        "spec": {
            "containers": [{"name": "sandbox", "env": [{"name": "A", "value": "1"}]}, {"name": "other", "image": "x"}],
            "volumes": [{"name": "data", "configMap": {"name": "data"}}, {"name": "tmp", "emptyDir": {"medium": None}}],
        }
    }
    spec = with_own(own)["spec"]
    assert [container["name"] for container in spec["containers"]] == ["sandbox", "other"]
    assert spec["containers"][0]["image"] == "image"
    assert spec["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["tmp"]["emptyDir"] == {"sizeLimit": "100"}
    assert volumes["data"]["configMap"] == {"name": "data"}


def test_a_merge_does_not_change_our_manifest_in_place() -> None:
    ours = manifest(RECIPE)
    before = repr(ours)
    merged(ours, {"spec": {"containers": [{"name": "sandbox", "image": "other"}], "hostname": None}})
    assert repr(ours) == before


def of_container(**own: object) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "sandbox", **own}]}}


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"spec": {"hostNetwork": True}}, "spec.hostNetwork is True"),
        ({"spec": {"hostPID": True}}, "spec.hostPID is True"),
        ({"spec": {"automountServiceAccountToken": True}}, "spec.automountServiceAccountToken is True"),
        ({"spec": {"automountServiceAccountToken": None}}, "spec.automountServiceAccountToken is None"),
        ({"spec": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}}, "volume host is a hostPath"),
        ({"spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": None}}]}}, "volume tmp has no sizeLimit"),
        ({"spec": {"volumes": [{"name": "more"}]}}, "volume more has no sizeLimit"),
        ({"spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "0"}}]}}, "volume tmp has no sizeLimit"),
        (
            {"spec": {"volumes": [{"name": "tmp", "emptyDir": {"medium": None}}]}},
            "volume tmp is on the disk of its node",
        ),
        ({"spec": {"priorityClassName": "system-node-critical"}}, "spec.priorityClassName is set"),
        ({"spec": {"securityContext": {"runAsUser": 0}}}, "container sandbox: may run as root"),
        ({"spec": {"securityContext": {"runAsNonRoot": None}}}, "container sandbox: may run as root"),
        (
            {"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}},
            "container sandbox: has no system call filter",
        ),
        (of_container(securityContext={"privileged": True}), "container sandbox: is privileged"),
        (of_container(securityContext={"allowPrivilegeEscalation": None}), "container sandbox: may gain privileges"),
        (of_container(securityContext={"readOnlyRootFilesystem": False}), "container sandbox: can write to its image"),
        (of_container(securityContext={"capabilities": {"drop": []}}), "container sandbox: keeps capabilities"),
        (
            of_container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
            "container sandbox: gains capability SYS_ADMIN",
        ),
        (of_container(resources={"limits": {"memory": None}}), "container sandbox: has no memory limit"),
        (
            of_container(resources={"limits": {"devices.kubevirt.io/kvm": "1"}}),
            "container sandbox: gets the resource devices.kubevirt.io/kvm",
        ),
        (of_container(resources={"limits": {"cpu": "0"}}), "container sandbox: has no cpu limit"),
        (
            of_container(livenessProbe={"httpGet": {"host": "10.0.0.1", "port": 80}}),
            "container sandbox: makes its node send requests to another host by its livenessProbe",
        ),
        (
            {"metadata": {"annotations": {"v1.multus-cni.io/default-network": "lan"}}},
            "annotation v1.multus-cni.io/default-network is set",
        ),
        (
            of_container(ports=[{"name": "web", "containerPort": 80, "hostPort": 80}]),
            "container sandbox: listens on port 80 of its node",
        ),
        ({"spec": {"containers": [{"name": "other", "image": "x"}]}}, "container other: may gain privileges"),
        ({"spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db"]}]}}, "spec.hostAliases is set"),
        ({"spec": {"a future field": 1}}, "spec.a future field is set"),
        (
            {"spec": {"securityContext": {"sysctls": [{"name": "a", "value": "1"}]}}},
            "spec.securityContext.sysctls is set",
        ),
        ({"spec": {"securityContext": {"fsGroup": 0}}}, "container sandbox: runs in root's group"),
        ({"metadata": {"finalizers": ["example.org/keep"]}}, "metadata.finalizers delay the deletion of the pod"),
        (
            {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/sandbox": "unconfined"}}},
            "annotation container.apparmor.security.beta.kubernetes.io/sandbox is set",
        ),
        (
            of_container(securityContext={"procMount": "Unmasked"}),
            "container sandbox: securityContext.procMount is set",
        ),
        (of_container(envFrom=[{"secretRef": {"name": "s"}}]), "container sandbox: envFrom is set"),
        (
            of_container(env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
            "container sandbox: gets a secret in its variable KEY",
        ),
        (
            of_container(volumeMounts=[{"name": "x", "mountPath": "/x", "mountPropagation": "Bidirectional"}]),
            "container sandbox: shares mounts at /x with its node",
        ),
        (
            {"spec": {"initContainers": [{"name": "first", "image": "x"}]}},
            "container first: has no cpu limit",
        ),
    ],
    ids=str,
)
def test_a_restriction_that_the_operator_weakens_is_reported(own: dict[str, Any], says: str) -> None:
    assert says in [*loosened(with_own(own))]


@pytest.mark.parametrize(
    "own",
    [
        {"metadata": {"labels": {"team": "a"}, "annotations": {"owner": "a"}}},
        {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}},
        {"spec": {"affinity": {"nodeAffinity": {}}, "runtimeClassName": "gvisor"}},
        {"spec": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"pool": "a"}}},
        of_container(env=[{"name": "LANG", "value": "C"}], image="other", resources={"requests": {"cpu": "1"}}),
    ],
    ids=str,
)
def test_a_change_that_weakens_no_restriction_is_not_reported(own: dict[str, Any]) -> None:
    merged_pod = with_own(own)
    assert [*loosened(merged_pod), *rebound(manifest(RECIPE), merged_pod)] == []


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (of_container(resources={"limits": {"memory": "8Gi"}}), "the memory limit is 8Gi"),
        ({"spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "9Gi"}}]}}, "the size of volume tmp is 9Gi"),
        ({"spec": {"activeDeadlineSeconds": None}}, "spec.activeDeadlineSeconds is none"),
        (of_container(terminationMessagePath="/tmp/x"), "terminationMessagePath is /tmp/x"),
        (of_container(securityContext={"runAsUser": 1000}), "the user id is 1000"),
        (
            of_container(securityContext={"seccompProfile": {"type": "Localhost"}}),
            "the system call filter is Localhost",
        ),
        (of_container(stdinOnce=False), "stdinOnce is none"),
        ({"spec": {"dnsPolicy": "ClusterFirst"}}, "spec.dnsPolicy is ClusterFirst"),
    ],
    ids=str,
)
def test_bounds_that_the_operator_changes_are_reported(own: dict[str, Any], says: str) -> None:
    (line,) = rebound(manifest(RECIPE), with_own(own))
    assert line == f"{says}, whatever else the profile says"


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (of_container(resources={"limits": {"memory": "8Gi"}}), ["the memory limit is 8Gi"]),
        (of_container(resources={"limits": {"cpu": None}}), ["the cpu limit is none"]),
        ({"spec": {"securityContext": {"runAsUser": 1000}}}, ["the user id is 1000"]),
        ({"spec": {"dnsPolicy": "ClusterFirst", "nodeSelector": {"pool": "a"}}}, []),
        ({}, []),
    ],
    ids=str,
)
def test_limits_that_no_longer_apply_are_reported(own: dict[str, Any], says: list[str]) -> None:
    assert unlimited(manifest(RECIPE), with_own(own)) == says


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"pod_manifest": {"spec": {"containers": "sandbox"}}}, "pod_manifest: spec.containers: "),
        ({"pod_manifest": {"spec": {"containers": [{"image": "x"}]}}}, "pod_manifest: spec.containers.0.name: "),
        ({"pod_manifest": {"spec": {"volumes": [{"emptyDir": {}}]}}}, "pod_manifest: spec.volumes.0.name: "),
        ({"pod_manifest": {"spec": {"securityContext": 1}}}, "pod_manifest: spec.securityContext: "),
        ({"pod_manifest": {"spec": {"volumes": [{"name": "x", "emptyDir": 1}]}}}, "spec.volumes.0.emptyDir: "),
        ({"pod_manifest": {"metadata": {"labels": {"a": 1}}}}, "pod_manifest: metadata.labels.a: "),
        ({"pod_manifest": {"metadata": {"labels": {"llm-sandbox-mcp.network": "open"}}}}, "are the server's own"),
        ({"pod_manifest": {"spec": {"since": date(2026, 1, 1)}}}, "pod_manifest: must contain only strings, numbers"),
        ({"tolerations": [{"key": date(2026, 1, 1)}]}, "kubernetes.tolerations.0: must contain only strings, numbers"),
        ({"labels": {"llm-sandbox-mcp.network": "open"}}, "kubernetes.labels: labels that begin with"),
        ({"labels": {"llm-sandbox-mcp.server": "other"}}, "are the server's own"),
    ],
    ids=str,
)
def test_a_mistake_in_the_pod_settings_is_reported_when_the_profile_is_read(section: dict[str, Any], says: str) -> None:
    with pytest.raises(ProfileError) as raised:
        load_profile("kubernetes", {"kubernetes": section})
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "own",
    [
        of_container(volumeMounts=[{"name": ["tmp"], "mountPath": "/x"}]),
        {"spec": {"tolerations": [{"key": ["a"]}]}},
    ],
    ids=str,
)
def test_names_that_are_not_text_do_not_break_a_merge(own: dict[str, Any]) -> None:
    recipe = replace(RECIPE, tolerations=({"key": "sandboxes"},))
    assert merged(manifest(recipe), own)["spec"]


def test_a_mount_of_ours_is_changed_by_its_name() -> None:
    own = of_container(volumeMounts=[{"name": "tmp", "readOnly": True}])
    assert profile_with(own)
    mounts = {mount["name"]: mount for mount in with_own(own)["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["tmp"] == {"name": "tmp", "mountPath": "/tmp", "readOnly": True}


def test_the_operators_manifest_can_have_any_other_fields() -> None:
    own = {"spec": {"containers": [{"name": "sandbox", "lifecycle": {}}], "new": {"field": [1]}}}
    assert table(profile_with(own), "kubernetes").pod_manifest == own


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ({}, "/mnt/data"),
        (of_container(volumeMounts=[{"name": "models", "mountPath": "/models"}, {"name": "sandbox"}]), "/mnt/data"),
        (of_container(volumeMounts=[{"name": "models", "mountPath": "/mnted"}]), "/mnt/data"),
        (of_container(volumeMounts=[{"name": "models", "mountPath": "/mnt"}]), ""),
        (of_container(volumeMounts=[{"name": "models", "mountPath": "/mnt/data/"}]), ""),
        (of_container(volumeMounts=[{"name": "models", "mountPath": "/mnt/a/b"}]), ""),
    ],
    ids=str,
)
def test_the_working_directory_has_its_other_name_unless_the_operator_mounts_something_there(
    own: dict[str, Any], name: str
) -> None:
    assert alias_beside(mounted(own)) == name
