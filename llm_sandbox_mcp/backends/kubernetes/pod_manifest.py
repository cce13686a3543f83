"""The shape of a pod's manifest in a profile, as far as it is checked here; the cluster checks the rest."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from ...toml.corrections import first_mistake

OWN = "llm-sandbox-mcp."
"""The prefix of the server's own labels."""

_T = TypeVar("_T")
_Name = Annotated[str, Field(min_length=1)]


def _not_own(labels: Mapping[str, str]) -> Mapping[str, str]:
    for name in labels:
        if name.startswith(OWN):
            raise ValueError(f"labels that begin with {OWN} are the server's own; remove {name}")
    return labels


Labels = Annotated[Mapping[str, str], AfterValidator(_not_own)]
"""Labels that the operator sets. Our own labels name a pod's server, and whether policies allow it the network."""


class _Named(BaseModel):
    name: _Name


class _Variable(_Named):
    valueFrom: Mapping[str, Any] | None = None


class _Mount(BaseModel):
    """One of our own mounts, given by its name, or another, given by its path."""

    name: _Name | None = None
    mountPath: _Name | None = None


class _Volume(_Named):
    emptyDir: Mapping[str, Any] | None = None


class _Capabilities(BaseModel):
    add: Sequence[str] | None = None
    drop: Sequence[str] | None = None


class _Security(BaseModel):
    capabilities: _Capabilities | None = None
    seccompProfile: Mapping[str, Any] | None = None


class _Resources(BaseModel):
    limits: Mapping[str, Any] | None = None


class _Container(_Named):
    env: Sequence[_Variable] | None = None
    ports: Sequence[Mapping[str, Any]] | None = None
    resources: _Resources | None = None
    securityContext: _Security | None = None
    volumeMounts: Sequence[_Mount] | None = None


class _Spec(BaseModel):
    containers: Sequence[_Container] = ()
    initContainers: Sequence[_Container] | None = None
    securityContext: _Security | None = None
    volumes: Sequence[_Volume] | None = None


class _Metadata(BaseModel):
    annotations: Mapping[str, str] | None = None
    labels: Labels = Field(default_factory=dict)


class _Pod(BaseModel):
    metadata: _Metadata = Field(default_factory=_Metadata)
    spec: _Spec = Field(default_factory=_Spec)


def _plain(value: _T) -> _T:
    try:
        json.dumps(value)
    except TypeError:
        raise ValueError("must contain only strings, numbers, lists and tables; write dates as strings") from None
    return value


def _shaped(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    _plain(manifest)
    try:
        _Pod.model_validate(manifest)
    except ValidationError as error:
        mistake = first_mistake(error)
        raise ValueError(f"{mistake.key}: {mistake.reason}") from None
    return manifest


Toleration = Annotated[Mapping[str, Any], AfterValidator(_plain)]
"""Allows a pod on nodes that have a taint against other pods."""

PodManifest = Annotated[Mapping[str, Any], AfterValidator(_shaped)]
"""A manifest, or a part of one, that can be merged into the manifests of sandboxes."""


def mounted(manifest: Mapping[str, Any]) -> list[str]:
    """The paths at which such a manifest mounts volumes."""
    containers = _Pod.model_validate(manifest).spec.containers
    return [mount.mountPath for one in containers for mount in one.volumeMounts or () if mount.mountPath]
