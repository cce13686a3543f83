"""The sections of a profile, one model each; `configs/default.toml` explains every key."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ..base.destinations import Destination
from ..base.open_folders import OpenFolder
from ..base.policy import LEAST, Network, NetworkMode, Policy
from ..base.units import PositiveDuration, PositiveSize, Size, format_size
from ..toml.model import Many, OptionalPath, Section, absolute_if_any

_LONGEST_MODULE = 200
"""Characters of the name of a module."""
_MODULES = 50
"""The most modules that an interpreter imports ahead."""
SAVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,98}[A-Za-z0-9_-]|[A-Za-z0-9]")
"""The name of a saved session."""
_SCHEME = "://"
"""What the address of an object store has, and no path."""


def _enough_memory(size: int) -> int:
    if size < LEAST["memory"]:
        raise ValueError(f"must be at least {format_size(LEAST['memory'])}")
    return size


class BackendSection(Section):
    """Which engine makes the sandboxes."""

    name: str
    require_limits: bool


class ServerSection(Section):
    """Where a server keeps its files on this machine, and whether it may ask package indexes for more."""

    cache: OptionalPath
    runtime: OptionalPath
    offline: bool


class Limits(Section):
    """What one sandbox and one run can use; `configs/default.toml` explains every key."""

    memory: Annotated[Size, AfterValidator(_enough_memory)]
    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    pids: Annotated[int, Field(ge=LEAST["pids"])]
    disk: PositiveSize
    files: PositiveInt
    file_size: PositiveSize
    timeout: PositiveDuration
    grace: Annotated[PositiveDuration, Field(le=60)]
    cpu_time: PositiveDuration
    output: PositiveSize
    shown: PositiveSize
    code: PositiveSize
    install_timeout: PositiveDuration

    def policy(self) -> Policy:
        """The part of the limits that applies to a sandbox and its runs."""
        return Policy(
            memory=self.memory,
            cpus=self.cpus,
            pids=self.pids,
            disk=self.disk,
            files=self.files,
            file_size=self.file_size,
            timeout=self.timeout,
            grace=self.grace,
            cpu_time=self.cpu_time,
            output=self.output,
        )


def _place(value: str) -> str:
    if _SCHEME not in value:
        return absolute_if_any(value)
    if not re.fullmatch(r"(s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._=-]*)*/?", value):
        raise ValueError(f"{value!r} must be a folder, or an object store such as s3://BUCKET/PREFIX")
    return value.rstrip("/")


def _key_file(value: str) -> str:
    if re.fullmatch("[0-9A-Fa-f]{64}", value):
        raise ValueError("must be the path of a file with the key, not the key")  # which no message shows
    return absolute_if_any(value)


class SessionLimits(Section):
    """How many sessions can exist, and for how long, live and saved."""

    max: PositiveInt
    idle_timeout: PositiveDuration
    starts_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    store: Annotated[str, AfterValidator(_place)]
    key_file: Annotated[str, AfterValidator(_key_file)]
    saved: PositiveInt
    saved_size: PositiveSize
    saved_age: PositiveDuration
    keep: bool
    checkpoint: Literal["never", "run"]
    undo_kills: bool
    kept: PositiveInt
    save_timeout: PositiveDuration

    @property
    def in_objects(self) -> bool:
        """Whether the store is an object store, not a folder."""
        return _SCHEME in self.store

    @field_validator("checkpoint")
    @classmethod
    def _kept_at_all(cls, value: str, others: ValidationInfo) -> str:
        if value != "never" and not others.data.get("keep", True):
            raise ValueError("needs sessions.keep = true")
        return value

    @field_validator("undo_kills")
    @classmethod
    def _kept_as_well(cls, value: bool, others: ValidationInfo) -> bool:
        if value and not others.data.get("keep", True):
            raise ValueError("needs sessions.keep = true")
        return value


class PoolLimits(Section):
    """Which sandboxes are kept warm, and how many can exist in total."""

    languages: Many[str]
    libraries: Mapping[str, Many[Annotated[str, Field(min_length=1)]]]
    min: NonNegativeInt
    stock: NonNegativeInt
    max: PositiveInt
    idle_timeout: PositiveDuration
    lifetime: PositiveDuration
    health_interval: PositiveDuration
    exhaustion: Literal["wait", "fail_fast", "temporary"]
    acquire_timeout: PositiveDuration

    @field_validator("max")
    @classmethod
    def _enough_for_min(cls, value: int, others: ValidationInfo) -> int:
        wanted = others.data.get("min", 0) * len(others.data.get("languages", ()))
        if wanted > value:
            raise ValueError(f"must be at least {wanted}: pool.min for each of pool.languages")
        return value


class ArtifactLimits(Section):
    """How many of the files that runs leave behind are kept."""

    files: PositiveInt
    file_size: Size
    store: Size
    store_files: PositiveInt


class FilesSection(Section):
    """Folders of the host that callers on stdio can copy from, and to."""

    folders: Many[Annotated[str, AfterValidator(lambda text: str(OpenFolder.parse(text)))]]
    client_roots: bool

    @property
    def opened(self) -> tuple[OpenFolder, ...]:
        """The folders, parsed."""
        return tuple(map(OpenFolder.parse, self.folders))


class ToolsSection(Section):
    """Which tools exist in addition to our own."""

    old_names: bool


class HttpSection(Section):
    """Who can call a server that listens on a port."""

    hosts: Many[Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])$")]]
    token_file: OptionalPath
    execute_code: bool


def _destination(text: str) -> str:
    try:
        Destination.parse(text)
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None
    return text


class SecretSection(Section):
    """A header that the proxy adds to plain HTTP requests to a domain; its value is never in the profile."""

    domain: Annotated[str, AfterValidator(_destination)]
    header: Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
    value_file: OptionalPath = ""
    value_env: str = ""

    @field_validator("domain")
    @classmethod
    def _one_host(cls, value: str) -> str:
        host = Destination.parse(value).host
        if host.startswith("*.") or "/" in host:
            raise ValueError(f'{value!r} must be one host, such as "api.example" or "api.example:8443"')
        return value

    @field_validator("header")
    @classmethod
    def _not_framing(cls, value: str) -> str:
        if value.lower() in _FRAMING:
            raise ValueError(f"must not be {value!r}, which controls how a request is read; choose another header")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.value_file) == bool(self.value_env):
            raise ValueError("must have either value_file or value_env, and not both")
        return self


_FRAMING = ("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade")


class NetworkSection(Section):
    """What code can reach outside its own sandbox."""

    mode: NetworkMode
    domains: Many[Annotated[str, AfterValidator(_destination)]]
    secrets: Many[SecretSection]

    @model_validator(mode="after")
    def _used_by_mode(self) -> Self:
        if self.mode != "allow" and (self.domains or self.secrets):
            key = "domains" if self.domains else "secrets"
            raise ValueError(f'{key} need mode = "allow", but mode is {self.mode!r}; change one of them')
        return self

    def granted(self) -> Network:
        """The part of the section that applies to a sandbox."""
        return Network(self.mode, tuple(map(Destination.parse, self.domains)))


class AuditSection(Section):
    """Where refusals are logged."""

    file: OptionalPath
    size: Size


class HandlersSection(Section):
    """Where further languages are defined."""

    folders: Many[str]


def _module(name: str) -> str:
    if len(name) > _LONGEST_MODULE or not all(map(str.isidentifier, name.split("."))):
        raise ValueError("is not the name of a module")
    return name


def _saved_name(name: str) -> str:
    if name and not SAVED_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be the name of a saved session: use 1 to 100 ASCII letters, digits, spaces, dots, "
            "hyphens and underscores; begin with a letter or digit"
        )
    return name


class LanguageSection(Section):
    """What the operator sets for one language."""

    libraries: Many[str] = ()
    preload: Annotated[Many[Annotated[str, AfterValidator(_module)]], Field(max_length=_MODULES)] = ()
    start: Annotated[str, AfterValidator(_saved_name)] = ""
    index: str = ""
    env: Mapping[str, str] = {}
    allow: Many[str] = ()
    deny: Many[str] = ()
    opened: Many[str] = ()
