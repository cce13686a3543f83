"""Makes the pages of the site: from the documents, the default profile, the parser and the server."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from .commands_page import make_commands_page
from .documents import make_documents
from .profile_page import make_profile_page
from .tools_page import make_tools_page

_REFERENCES: Mapping[str, Callable[[], str]] = {
    "reference/command-line.md": make_commands_page,
    "reference/profile.md": make_profile_page,
    "reference/tools.md": make_tools_page,
}


def make_pages(wanted: Iterable[str]) -> Mapping[str, str | Path]:
    """The wanted pages as Markdown, by their path on the site, and the files of the project that they link to.

    A path is that of a document of the project, such as `handlers/README.md`; or `NAME.md` for one of `docs/pages`; or
    one of the references.
    """
    paths = list(wanted)
    references = {path: make() for path, make in _REFERENCES.items() if path in paths}
    return {**references, **make_documents([path for path in paths if path not in references])}
