"""`llm-sandbox-mcp serve`."""

import argparse
import logging
import os
import resource
import sys
from collections.abc import Mapping

import anyio

from ..base.errors import InvalidArgument, ProfileError
from ..compat.environment import old_variables, settings_of
from ..profile.sections import FilesSection
from .logs import log_to_stderr
from .opening import named_profile, opened, read_profile

_HOST, _PORT = "127.0.0.1", 8000
_OPEN_MAX = 10_240
"""Open files that macOS gives at most, also where its limit is named as infinite."""

_log = logging.getLogger(__name__)

_FOR_PEOPLE = """\
llm-sandbox-mcp waits for an MCP client on standard input; hosts start it themselves (Ctrl-C ends it)
to set up a host: llm-sandbox-mcp client-config claude-desktop; to run code: llm-sandbox-mcp run -c 'print(6 * 7)'; \
to see what works here: llm-sandbox-mcp doctor
"""


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Serves MCP until the client disconnects or a signal arrives."""
    variables = old_variables(environ, named=bool(named_profile(options, environ)))
    for variable in variables:
        if variable.refused:
            raise ProfileError(*variable.problem)
    on_port = options.host is not None or options.port is not None
    local = (options.transport or ("http" if on_port else "stdio")) == "stdio"
    if local and on_port:
        raise InvalidArgument("--transport stdio listens nowhere", "leave it out, or --host and --port")
    if options.folders and not local:
        raise InvalidArgument("--folder: only clients on stdio can use folders of this machine", "leave it out")
    profile = read_profile(options, environ, settings_of(variables))
    ignored = "" if local else ", ".join(profile.files.folders)
    if ignored:
        profile = profile.model_copy(update={"files": FilesSection(folders=(), client_roots=False)})

    # The inherited soft limit is often 1024, for old programs that use select(); this program can use more.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if sys.platform == "linux" else min(most, _OPEN_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))

    async def serve() -> None:
        log_to_stderr()
        if local and os.isatty(0):  # a client has a pipe or a socket; at a terminal is a person, who would see nothing
            sys.stderr.write(_FOR_PEOPLE)
        for variable in variables:
            _log.warning("%s", variable.line)
        if ignored:
            _log.warning("files.folders (%s): not opened, as clients over HTTP may be on other machines", ignored)
        async with opened(profile, environ) as service:
            # Imported here, so that mistakes in the profile are reported before all of this is loaded.
            from ..server import build_server
            from ..server.transports import serve_http, serve_stdio

            server = build_server(service, host_files=local)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(service.warm)
                if local:
                    await serve_stdio(server, service)
                else:
                    paths = None
                    if profile.http.execute_code:
                        from ..compat.rest import RestPaths

                        paths = RestPaths(service)
                    port = _PORT if options.port is None else options.port
                    await serve_http(server, service, options.host or _HOST, port, paths)
                tasks.cancel_scope.cancel()

    anyio.run(serve)
    return 0
