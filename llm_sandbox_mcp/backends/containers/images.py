"""The images of containers: their names, and how they are built, pulled and removed."""

import contextlib
import http.client
import logging
import re
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from ...base.errors import CapacityReached, InvalidArgument, StartFailed, quoted
from ..base import Images, OnLine, Sandbox, Surroundings, Template
from . import templates
from .agent import pack_handlers
from .engine import Engine, Stored
from .making import Build, build, pull
from .settings import Containers

T = TypeVar("T")

_log = logging.getLogger(__name__)

_ARGUMENT = re.compile(r"^\s*ARG\s+(\w+)", re.MULTILINE | re.IGNORECASE)
_PASSED_ON = "PIP_"
"""Arguments of a Dockerfile that begin with this are taken from the server's environment."""


@asynccontextmanager
async def _folder() -> AsyncIterator[Path]:
    """A folder for what is put into an image; not the server's own folder, which can be in memory."""
    async with anyio.TemporaryDirectory(prefix="llm-sandbox-image-") as made:
        yield Path(made)


class ContainerImages(Images):
    """The images of one engine; each server prepares an image once."""

    def __init__(self, settings: Containers, surroundings: Surroundings, connected: Callable[[], Awaitable[Engine]]):
        self._settings = settings
        self._surroundings = surroundings
        self._connected = connected
        self._ready: set[str] = set()
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._committing = anyio.Lock()

    async def build(self, language: str, on_line: OnLine, *, base: str = "", network: str = "") -> None:
        image = self._settings.name(language)
        await self._follow(partial(build, image=image, what=self._build(language, base, network), on_line=on_line))
        built = await self._look(image)
        if built is None:
            raise StartFailed(f"image {image} was removed while it was built", "build it again")
        handlers = await anyio.to_thread.run_sync(pack_handlers, self._surroundings.handlers)
        async with _folder() as folder:
            await anyio.Path(folder, handlers.name).write_bytes(handlers.archive)
            await self._add(folder, handlers.name, built.id, image, on_line)

    async def pull(self, language: str, on_line: OnLine) -> None:
        await self._follow(partial(pull, image=self._settings.name(language), on_line=on_line))

    async def size(self, language: str) -> int | None:
        found = await self._look(self._settings.name(language))
        return found.size if found else None

    async def prepare(self, language: str, on_line: OnLine) -> None:
        await self.ensure(self._settings.name(language), on_line)

    async def ensure(self, image: str, on_line: OnLine | None = None) -> None:
        """Makes sure that an image exists, as the profile says; raises `StartFailed` if that fails."""
        built = [language for language in self._settings.dockerfiles if self._settings.name(language) == image]
        if image in self._ready or (self._settings.pull == "never" and not built):
            return  # there is nothing to do: the engine itself reports a missing image
        async with self._locks[image]:
            if image in self._ready:
                return
            engine = await self._connected()
            missing = await self._look(image) is None
            note = on_line or partial(_log.info, "%s: %s", image)
            if missing and built:
                _log.warning("image %s is not on %s: building it", image, engine.name)
                await self.build(built[0], note)
            elif not built and (missing or self._settings.pull == "always"):
                _log.warning("pulling image %s with %s", image, engine.name)
                await self._follow(partial(pull, image=image, on_line=note))
            self._ready.add(image)

    async def commit(self, sandbox: Sandbox, image: str) -> str:
        name = templates.checked(self._settings.full(image))
        if self._settings.join:
            raise InvalidArgument(
                f"container {self._settings.join} was not made by this server", "commit it with the engine's own tools"
            )
        async with self._committing:
            before = await self._look(name)
            if before is not None and templates.name_of(before) != name:
                raise InvalidArgument(f"image {name} already exists and is not a template", "choose another name")
            if before is None:
                await self._find_room()
            base = await self._base(sandbox)
            async with _folder() as folder:
                await templates.pack(sandbox, folder / templates.ARCHIVE)
                labels = {templates.LABEL: name, templates.BASE: base}
                await self._add(folder, templates.ARCHIVE, base, name, partial(_log.info, "%s: %s", name), labels)
            await self._remove_replaced(name)
        return name

    async def templates(self) -> list[Template]:
        engine = await self._connected()
        found = await anyio.to_thread.run_sync(engine.images, templates.LABEL)
        named = [Template(name, image.size) for image in found if (name := templates.name_of(image))]
        return sorted(named, key=lambda template: template.image)

    @property
    def most_templates(self) -> int:
        return self._settings.templates

    async def remove(self, image: str) -> None:
        name = templates.checked(self._settings.full(image))
        found = await self._look(name)
        if found is None or templates.name_of(found) != name:
            what = "there is no image with that name" if found is None else "it was not made from a session"
            raise InvalidArgument(
                f"image {quoted(name)} is not a template: {what}", "run `images list` to see the templates"
            )
        engine = await self._connected()
        await anyio.to_thread.run_sync(engine.remove_image, name)
        await self._remove_replaced(name)

    def forget(self, image: str) -> None:
        """Prepares the image again the next time, since it may have been removed."""
        self._ready.discard(image)

    def _build(self, language: str, base: str, network: str) -> Build:
        own = self._settings.dockerfiles.get(language)
        dockerfile = Path(own) if own else self._surroundings.handlers[language] / "Dockerfile"
        try:
            declared = set(_ARGUMENT.findall(dockerfile.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise StartFailed(
                f"{dockerfile} cannot be read: {reason}", "check containers.dockerfiles in the profile"
            ) from error
        if base and "BASE" not in declared:
            raise StartFailed(f"{dockerfile} takes no other base", "add the lines ARG BASE=... and FROM ${BASE} to it")
        values = {key: value for key, value in self._surroundings.environ.items() if key.startswith(_PASSED_ON)}
        if language in self._surroundings.libraries:
            values["LIBRARIES"] = " ".join(self._surroundings.libraries[language])
        if base:
            values["BASE"] = base
        return Build(dockerfile, {key: values[key] for key in sorted(values) if key in declared}, network)

    async def _add(
        self, folder: Path, file: str, base: str, image: str, on_line: OnLine, labels: Mapping[str, str] | None = None
    ) -> None:
        """Makes an image of a base, with a file from a folder in `/opt`."""
        # Code's user unpacks it, whatever the umask here is.
        await anyio.Path(folder, file).chmod(0o644)
        dockerfile = folder / "Dockerfile"
        await anyio.Path(dockerfile).write_text(
            f"ARG BASE\nFROM ${{BASE}}\nCOPY {file} /opt/{file}\n", encoding="utf-8"
        )
        what = Build(dockerfile, {"BASE": base}, labels=labels or {})
        await self._follow(partial(build, image=image, what=what, on_line=on_line))

    async def _find_room(self) -> None:
        if len(await self.templates()) >= self._settings.templates:
            raise CapacityReached(
                f"there is no room for another template (containers.templates = {self._settings.templates})",
                "remove one with `llm-sandbox-mcp images remove NAME`, or commit under its name to replace it",
            )

    async def _base(self, sandbox: Sandbox) -> str:
        """The base of a template of the sandbox: the sandbox's image or, if that is a template itself, its base."""
        image = await self._look(sandbox.image)
        if image is None:
            raise StartFailed(f"image {sandbox.image} of the session is gone", "open a new session")
        return image.labels[templates.BASE] if templates.name_of(image) else image.id

    async def _look(self, name: str) -> Stored | None:
        engine = await self._connected()
        return await anyio.to_thread.run_sync(engine.image, name)

    async def _remove_replaced(self, name: str) -> None:
        """Removes templates that were replaced under the same name; a template in use is removed the next time."""
        engine = await self._connected()
        for image in await anyio.to_thread.run_sync(engine.images, templates.LABEL):
            if not image.names and image.labels[templates.LABEL] == name:
                with contextlib.suppress(StartFailed):
                    await anyio.to_thread.run_sync(engine.remove_image, image.id)

    async def _follow(self, work: Callable[[Engine, http.client.HTTPConnection], None]) -> None:
        engine = await self._connected()
        connection = await anyio.to_thread.run_sync(engine.http)
        wire = connection.sock
        try:
            await anyio.to_thread.run_sync(work, engine, connection, abandon_on_cancel=True)
        finally:
            # Wakes the thread if it was abandoned; the engine stops the work when nobody listens.
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
            wire.close()
            connection.close()
