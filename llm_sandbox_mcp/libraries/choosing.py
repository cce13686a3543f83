"""Chooses the package manager for a sandbox: the first one of the language that is installed there."""

from ..backends.base import Sandbox
from ..errors import InstallFailed, PolicyDenied
from ..languages import Libraries
from ..places import Places


async def choose(sandbox: Sandbox, places: Places) -> Libraries:
    """How to install libraries into a sandbox; raises `InstallFailed`, with the missing programs, if none can."""
    name, first = places.language.name, places.language.handler.libraries
    if first is None:
        raise PolicyDenied(f"{name} has no package manager here")
    tried = []
    for manager in (first, *first.alternatives):
        absent = await sandbox.lacking(places.argv(manager.requires), places.env(sandbox.path))
        if not absent:
            return first.model_copy(update=dict(manager))
        tried.append(" and ".join(absent))
    missing = ", or ".join(tried)
    step = f"install {missing} there"
    if sandbox.image:
        step = "add it to the image, or build one that has it: llm-sandbox-mcp images build"
    raise InstallFailed(
        f"libraries of {name} cannot be installed without {missing}, which {sandbox.origin} does not have; {step}"
    )
