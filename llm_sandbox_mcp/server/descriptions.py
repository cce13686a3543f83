"""What a model reads about the tools of this server: facts of its profile and languages that it needs before a call."""

from collections.abc import Sequence

from ..backends.layout import WORKDIR
from ..base.messages import listed
from ..base.open_folders import View
from ..base.units import format_size
from ..languages.languages import Languages
from ..profile.profile import Profile

NAMES_SHOWN = 20
_HOSTS_SHOWN = 5


def describe_execution(profile: Profile, languages: Languages, *, host_files: bool) -> str:
    """The description of `execute_code`, after its first sentences. `host_files`: code sees the operator's folders."""
    limits = profile.limits
    live = [name for name, language in languages.items() if language.handler.stateful]
    whole = [name for name in languages if name not in live]
    parts = [f"Pass the returned session_id to keep {'variables and files' if live else 'files'}."]
    if whole:
        parts.append(f"{listed(whole, NAMES_SHOWN)} take whole programs{' and keep files only' if live else ''}.")
    parts.append(f"Code starts in {WORKDIR}; files left there are returned.")
    if host_files and profile.files.opened:
        parts.append(describe_views(profile))
    for name in languages:
        if libraries := profile.language(name).libraries:
            parts.append(f"{name} has {listed(libraries, NAMES_SHOWN)}.")
    most = f"{limits.timeout:g} seconds and {format_size(limits.memory)} of memory"
    parts.append(f"A run has at most {most}. {describe_network(profile)}.")
    return " ".join(parts)


def describe_views(profile: Profile) -> str:
    """Where code sees the folders of the user's machine that the operator opened."""
    seen = listed((f"{view.place} ({view.folder.path})" for view in profile.views), NAMES_SHOWN)
    writable = [view for view in profile.views if view.folder.writable]
    parts = [f"Code reads the user's folders at {seen}"]
    if writable:
        parts.append(f"changes below {_places(writable)} are saved when a run ends")
    if kept := [view for view in writable if not view.folder.deletes]:
        where = "" if kept == writable else f" below {_places(kept)}"
        parts.append(f"deletions{where} are not")
    return "; ".join(parts) + "."


def _places(views: Sequence[View]) -> str:
    return listed((view.place for view in views), NAMES_SHOWN)


def describe_host_files(profile: Profile, *, host_files: bool) -> dict[str, str]:
    """For each argument that names files of the user's machine, where they can be; empty: nowhere."""
    folders = profile.files.opened if host_files else ()
    readable = listed((folder.path for folder in folders), NAMES_SHOWN)
    writable = listed((folder.path for folder in folders if folder.writable), NAMES_SHOWN)
    if host_files and profile.files.client_roots:
        readable = f"{readable} or a root of this client" if readable else "a root of this client"
    host_path = f"below {readable}; direction out: {f'below {writable}' if writable else 'nowhere'}"
    return {
        "host_path": host_path if readable else "",
        "save_to": f"{writable} or below" if writable else "",
    }


def describe_network(profile: Profile) -> str:
    """What code can reach, in a few words."""
    network = profile.network
    if network.mode == "none":
        return "Code has no network"
    if network.mode == "open":
        return "Code has a network"
    return f"Code can reach only {listed(network.domains, _HOSTS_SHOWN)}, through the proxy in HTTPS_PROXY"
