"""The resources that clients can read: languages, the profile, the pool, artifacts."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from math import ceil
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmptyResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    SubscribeRequestParams,
    TextResourceContents,
    UnsubscribeRequestParams,
)

from ..backends.listening import PROXY_PORT
from ..base.errors import InvalidArgument, SandboxError, quoted
from ..base.principal import Principal
from ..base.text import valid
from ..base.units import format_size
from ..service import Service
from . import uris
from .access import principal_of
from .audience import Context
from .content import blob, contents
from .old_names import OldNames
from .words import in_words

_COMPLETIONS = 100
"""Completions in one answer at most; the protocol sets this limit."""
_MOST = 4 << 20
"""Bytes of an artifact in one answer. The package makes JSON of it all at once, and no thread helps with that: 32 MiB
would hold up everybody for half a second."""
_SUBSCRIPTIONS = 1000
"""Resources that one connection can subscribe to."""


class Resources:
    """Answers the resources/ and completion/ requests."""

    def __init__(self, service: Service, *, host_files: bool) -> None:
        self._service = service
        self._host_files = host_files

    async def list_resources(self, _ctx: Context, _params: PaginatedRequestParams | None) -> ListResourcesResult:
        """Answers resources/list. Artifacts are not listed: their addresses contain session ids, which are secrets."""
        return ListResourcesResult(
            resources=[
                Resource(
                    uri=uris.LANGUAGES,
                    name="languages",
                    title="Languages",
                    description="The available languages",
                    mime_type="application/json",
                ),
                Resource(
                    uri=uris.PROFILE,
                    name="profile",
                    title="Profile",
                    description="Limits of this server, and how much of them is used; sizes in bytes, times in seconds",
                    mime_type="application/json",
                ),
                Resource(
                    uri=uris.POOL,
                    name="pool",
                    title="Pool",
                    description="Numbers of sandboxes: warm, in use, opened so far; how far the libraries are",
                    mime_type="application/json",
                ),
            ]
        )

    async def list_templates(
        self, _ctx: Context, _params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """Answers resources/templates/list."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(
                    uri_template=uris.LANGUAGE_TEMPLATE,
                    name="language",
                    title="Language",
                    description="Version, libraries and examples of one language",
                    mime_type="application/json",
                ),
                ResourceTemplate(
                    uri_template=uris.ARTIFACT_TEMPLATE,
                    name="artifact",
                    title="Artifact",
                    description="A file or figure that a run left behind; large ones in parts: ?offset=0&length=10000",
                ),
            ]
        )

    async def read(self, ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Answers resources/read."""
        try:
            return await self._read(params.uri, principal_of(ctx.request))
        except SandboxError as error:
            raise MCPError(INVALID_PARAMS, valid(in_words(error)), {"uri": valid(params.uri)}) from error

    async def _read(self, uri: str, caller: Principal) -> ReadResourceResult:
        if uri == uris.LANGUAGES:
            old_names = self._service.profile.tools.old_names
            return _json(uri, await OldNames(self._service).all_details() if old_names else self._languages())
        if uri == uris.PROFILE:
            return _json(uri, await self._profile())
        if uri == uris.POOL:
            return _json(uri, {**asdict(self._service.pool()), "preparing": self._service.preparing()})
        if (language := uris.parse_language_uri(uri)) is not None:
            return _json(uri, await self._service.describe_language(language))
        whole, offset, length = uris.parse_part_uri(uri) or (uri, 0, 0)
        if (address := uris.parse_artifact_uri(whole)) is not None:
            if length > _MOST:
                raise InvalidArgument(f"length must be at most {_MOST} bytes in one answer", "read several parts")
            await self._service.keeping.bring_back(caller, address[0])
            artifact, data = await self._service.files.read_artifact(*address, offset, length or _MOST)
            if whole != uri:
                return ReadResourceResult(contents=[await blob(uri, artifact, data)])
            if artifact.size > _MOST:
                raise InvalidArgument(
                    f"{quoted(artifact.name)} has {format_size(artifact.size)}, and one answer carries "
                    f"{format_size(_MOST)} at most",
                    f"read it in {ceil(artifact.size / _MOST)} parts, the first at {uris.part_uri(uri, 0, _MOST)}",
                )
            return ReadResourceResult(contents=[await contents(address[0], artifact, data)])
        known = ", ".join((uris.LANGUAGES, uris.LANGUAGE_TEMPLATE, uris.PROFILE, uris.POOL, uris.ARTIFACT_TEMPLATE))
        raise MCPError(INVALID_PARAMS, f"unknown resource {quoted(uri)}; available: {known}", {"uri": valid(uri)})

    def _languages(self) -> list[dict[str, Any]]:
        return [
            {
                "name": language.name,
                "title": language.handler.title,
                "aliases": language.handler.aliases,
                "stateful": language.handler.stateful,
                "uri": uris.LANGUAGE_TEMPLATE.replace("{language}", language.name),
            }
            for language in self._service.languages.values()
        ]

    async def _profile(self) -> dict[str, Any]:
        # Only what concerns a caller: a package index can contain a password, and paths reveal facts of this machine.
        profile = self._service.profile
        held = await self._service.backend.limits()
        shown: dict[str, Any] = {
            "backend": profile.backend.name,
            "limits": profile.limits.model_dump(mode="json"),
            "limits_held": {"state": held.state, "detail": held.detail},
            "network": self._network(),
            "sessions": profile.sessions.model_dump(mode="json"),
            "artifacts": profile.artifacts.model_dump(mode="json"),
            "used": self._used(),
            "libraries": {name: profile.language(name).libraries for name in self._service.languages},
            "rules": {
                "block": profile.rules.block,
                "rules": [
                    rule.model_dump(mode="json", exclude_defaults=True) | {"severity": rule.severity}
                    for rule in self._service.rules
                ],
            },
        }
        if self._host_files:
            shown["files"] = profile.files.model_dump(mode="json")
        return shown

    def _used(self) -> dict[str, int]:
        kept = self._service.files.statistics()
        return {
            "sessions": len(self._service.sessions.list()),
            "artifacts": kept.artifacts,
            "artifact_bytes": kept.size,
        }

    def _network(self) -> dict[str, Any]:
        network = self._service.profile.network
        shown: dict[str, Any] = {"mode": network.mode}
        if network.mode == "allow":
            shown["proxy"] = f"http://127.0.0.1:{PROXY_PORT}"
            shown["domains"] = [str(destination) for destination in network.granted().destinations]
            # Code uses plain HTTP for these, since the proxy adds secrets that code must not see.
            shown["http"] = sorted({secret.domain for secret in network.secrets})
        return shown

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Answers resources/subscribe, which only the 2025 protocol has."""
        followed = ctx.lifespan_context.peer(ctx).uris
        if len(followed) >= _SUBSCRIPTIONS and params.uri not in followed:
            limit = f"{_SUBSCRIPTIONS} subscriptions are the limit; unsubscribe from a resource first"
            raise MCPError(INVALID_PARAMS, limit)
        followed.add(params.uri)
        return EmptyResult()

    async def unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """Answers resources/unsubscribe."""
        ctx.lifespan_context.peer(ctx).uris.discard(params.uri)
        return EmptyResult()

    async def complete(self, _ctx: Context, params: CompleteRequestParams) -> CompleteResult:
        """Answers completion/complete: languages, and the artifacts of a session whose id the caller sends."""
        known: Iterable[str] = ()
        if isinstance(params.ref, ResourceTemplateReference):
            match params.ref.uri, params.argument.name:
                case uris.LANGUAGE_TEMPLATE, "language":
                    known = self._service.languages
                case uris.ARTIFACT_TEMPLATE, "path":
                    known = self._paths(((params.context and params.context.arguments) or {}).get("session_id", ""))
        found = [valid(name) for name in known if name.startswith(params.argument.value)]
        shown = found[:_COMPLETIONS]
        return CompleteResult(completion=Completion(values=shown, total=len(found), has_more=len(found) > len(shown)))

    def _paths(self, session_id: str) -> list[str]:
        try:
            return sorted(artifact.name for artifact in self._service.files.artifacts(session_id))
        except SandboxError:
            return []


def _json(uri: str, value: object) -> ReadResourceResult:
    text = json.dumps(value, indent=1)
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type="application/json", text=text)])
