"""`llm-sandbox-mcp images build`, `pull`, `list` and `remove`."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence

from ..backends.base import Backend, Images
from ..base.errors import InvalidArgument, SandboxError
from ..base.text import escape
from ..base.units import format_size
from ..languages.languages import Languages
from .console import table
from .opening import opened, read_profile, run_until_signal

_FAILED = 2


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Works on the images of the profile's engine; if one fails, the others are still done."""
    profile = read_profile(options, environ)

    async def work() -> int:
        async with opened(profile, environ) as service:
            backend = await service.backend.chosen()
            if backend.images is None:
                raise InvalidArgument(
                    f"the backend {backend.name} has no images", "name docker or podman in backend.name of the profile"
                )
            if options.action == "remove":
                return await _remove(options.image, backend.images)
            languages = _chosen(options.language, service.languages)
            if options.action == "list":
                return await _list(backend, backend.images, languages, templates=not options.language)
            return await _make(options, backend, backend.images, languages)

    return run_until_signal(work)


def _chosen(names: Sequence[str], languages: Languages) -> list[str]:
    return [languages[name].name for name in names] or [*languages]


async def _list(backend: Backend, images: Images, languages: Sequence[str], *, templates: bool) -> int:
    rows = []
    for language in languages:
        size = await images.size(language)
        rows.append(
            (language, backend.image_of(language), "no" if size is None else "yes", format_size(size) if size else "-")
        )
    kept = await images.templates() if templates else []
    for template in kept:
        rows.append(("(template)", template.image, "yes", format_size(template.size)))
    sys.stdout.write(f"{table(('language', 'image', 'present', 'size'), rows)}\n")
    if kept:
        sys.stdout.write(f"{len(kept)} of {images.most_templates} templates (containers.templates)\n")
    return 0


async def _remove(names: Sequence[str], images: Images) -> int:
    failed = False
    for name in names:
        try:
            await images.remove(name)
        except SandboxError as error:
            sys.stderr.write(f"{escape(str(error))}\n")
            failed = True
    return _FAILED if failed else 0


async def _make(options: argparse.Namespace, backend: Backend, images: Images, languages: Sequence[str]) -> int:
    failed = False
    for language in languages:

        def report(line: str, language: str = language) -> None:
            sys.stderr.write(f"{escape(f'{language}: {line}')}\n")
            sys.stderr.flush()

        start = time.monotonic()
        try:
            if options.action == "build":
                await images.build(language, report, base=options.base or "", network=options.network or "")
            else:
                await images.pull(language, report)
        except SandboxError as error:
            report(str(error))
            failed = True
        else:
            report(f"{backend.image_of(language)} is ready after {time.monotonic() - start:.1f} s")
    return _FAILED if failed else 0
