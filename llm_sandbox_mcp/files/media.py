"""Media types of files, by their names."""

import mimetypes
import posixpath
from functools import cache

# Of the types that matter here, since the table of the standard library grows with Python.
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
    ending = posixpath.splitext(name)[1].lower()
    if ending in _TYPES:
        return _TYPES[ending]
    # Of the ending alone: a whole name may look like an address, which would be read in another way.
    known, compression = _types().guess_type(f"file{ending}")
    return _COMPRESSED.get(compression, _UNKNOWN) if compression else known or _UNKNOWN


@cache
def _types() -> mimetypes.MimeTypes:
    """Python's own, without those that the files of a machine add."""
    return mimetypes.MimeTypes()
