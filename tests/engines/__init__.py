"""Which backends work on this machine, the engines that the tests start themselves, and the small profile they use."""

from llm_sandbox_mcp.backends import BACKENDS
from llm_sandbox_mcp.testing.profiles import changed, host_folder, plain_handlers, surroundings, table

from .addresses import docker_host, podman_host
from .cluster import cluster, has_image, lack_own_cluster, need_image
from .kubernetes import kubeconfig
from .profiles import MIB, small_profile
from .requirement import REQUIRE, absent, need, need_control_groups, need_open_network, required, without_control_groups

__all__ = [
    "BACKENDS",
    "MIB",
    "REQUIRE",
    "absent",
    "changed",
    "cluster",
    "docker_host",
    "has_image",
    "host_folder",
    "kubeconfig",
    "lack_own_cluster",
    "need",
    "need_control_groups",
    "need_image",
    "need_open_network",
    "plain_handlers",
    "podman_host",
    "required",
    "small_profile",
    "surroundings",
    "table",
    "without_control_groups",
]
