"""Media types of files by their names."""

import mimetypes
import posixpath
from functools import cache

# The types that matter here; the table of the standard library depends on the Python version.
_TYPES = {
    ".csv": "text/csv",
    ".gif": "image/gif",
    ".htm": "text/html",
    ".html": "text/html",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".json": "application/json",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".webp": "image/webp",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_COMPRESSED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
_UNKNOWN = "application/octet-stream"


def mime_type(name: str) -> str:
    """The media type that a file's name suggests."""
    extension = posixpath.splitext(name)[1].lower()
    if extension in _TYPES:
        return _TYPES[extension]
    # Only the extension is used: a whole name can look like a URL, which would be parsed differently.
    known, compression = _types().guess_type(f"file{extension}")
    return _COMPRESSED.get(compression, _UNKNOWN) if compression else known or _UNKNOWN


@cache
def _types() -> mimetypes.MimeTypes:
    """The types that Python includes, without those from files of this machine."""
    return mimetypes.MimeTypes()
