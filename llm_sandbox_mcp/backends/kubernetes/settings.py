"""The settings of the backend on Kubernetes, as the profile has them."""

import os
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from ...base.units import PositiveDuration
from ...toml.model import Many, Section
from ..settings import Settings as EngineSettings
from .pod_manifest import Labels, PodManifest, Toleration

NAMESPACE = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
"""The name of a namespace of Kubernetes."""


class Kubernetes(Section):
    """The table [kubernetes] of the profile: which cluster to use, and how to make pods."""

    kubeconfig: str
    context: str
    namespace: Annotated[str, Field(pattern=f"^({NAMESPACE})?$")]
    image: Annotated[str, Field(min_length=1)]
    images: Mapping[str, str]
    pull: Literal["Always", "IfNotPresent", "Never"]
    pull_secrets: Many[str]
    environment: Annotated[str, Field(pattern="^/")]
    prefix: Many[Annotated[str, Field(min_length=1)]]
    join: str
    network: Literal["enforced", "unchecked"]
    reserved: Annotated[float, Field(gt=0, le=1)]
    starting: Annotated[int, Field(ge=1)]
    node_timeout: PositiveDuration
    runtime_class: str
    node_selector: Mapping[str, str]
    tolerations: Many[Toleration]
    labels: Labels
    annotations: Mapping[str, str]
    pod_manifest: PodManifest


class Settings(EngineSettings):
    """The part of the profile that the backend reads."""

    kubernetes: Kubernetes

    def languages(self) -> Mapping[str, str]:
        return {f"kubernetes.images.{name}": name for name in self.kubernetes.images}

    def files(self) -> Mapping[str, str]:
        # Several files, as in KUBECONFIG: some of them may be missing.
        several = os.pathsep in self.kubernetes.kubeconfig
        return {} if several else {"kubernetes.kubeconfig": self.kubernetes.kubeconfig}
