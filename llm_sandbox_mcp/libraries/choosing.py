"""Which package manager installs in a sandbox: the first of its language's that is there."""

from ..backends.base import Sandbox
from ..errors import InstallFailed, PolicyDenied
from ..languages import Libraries
from ..places import Places


async def choose(sandbox: Sandbox, places: Places) -> Libraries:
    """How libraries come into it; raises `InstallFailed` where nothing can install them, with what is missing."""
    name, first = places.language.name, places.language.handler.libraries
    if first is None:
        raise PolicyDenied(f"{name} has no package manager here")
    lacks = []
    for manager in (first, *first.alternatives):
        lacking = await sandbox.lacking(places.argv(manager.requires), places.env(sandbox.path))
        if not lacking:
            return first.model_copy(update=dict(manager))
        lacks.append(" and ".join(lacking))
    missing = ", or ".join(lacks)
    step = f"install {missing} there"
    if sandbox.image:
        step = "add that to the image, or make one: llm-sandbox-mcp images build"
    raise InstallFailed(
        f"libraries of {name} cannot be installed without {missing}, which {sandbox.origin} does not have; {step}"
    )
