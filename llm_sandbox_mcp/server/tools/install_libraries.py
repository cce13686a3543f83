"""The tool `install_libraries`: installs libraries into a session."""

from mcp.types import CallToolResult

from ...service import Service
from ..audience import Context
from ..content import describe_installed, success
from ..progress import reporting
from ..schemas import Installed, InstallLibraries, LibraryItem


async def install_libraries(service: Service, ctx: Context, arguments: InstallLibraries) -> CallToolResult:
    """The libraries that were installed, with their versions."""
    async with reporting(ctx.session.report_progress) as progress:
        installation = await service.install(
            arguments.libraries,
            language=arguments.language,
            session_id=arguments.session_id,
            on_progress=progress.line,
        )
    ctx.lifespan_context.note_use(ctx, installation.session_id)
    libraries = [LibraryItem(name=found.name, version=found.version) for found in installation.libraries]
    answer = Installed(session_id=installation.session_id, libraries=libraries)
    return success(describe_installed(answer), answer)
