"""Media types of files by their names, the same on every machine and in every version of Python."""

import mimetypes
import posixpath
from functools import cache

_OFFICE = "application/vnd.openxmlformats-officedocument"
_OPEN = "application/vnd.oasis.opendocument"

# Registered types where there are any, else what editors and desktops use; what is not here is as Python has it.
_EXTENSIONS = {
    "application/epub+zip": "epub",
    "application/geo+json": "geojson",
    "application/java-archive": "jar",
    "application/json": "json",
    "application/jsonl": "jsonl ndjson",
    "application/pdf": "pdf",
    "application/sql": "sql",
    "application/toml": "toml",
    "application/vnd.apache.arrow.file": "arrow feather",
    "application/vnd.apache.parquet": "parquet",
    "application/vnd.sqlite3": "sqlite sqlite3 db",
    "application/x-7z-compressed": "7z",
    "application/x-hdf5": "h5 hdf5",
    "application/x-ipynb+json": "ipynb",
    "application/xml": "xml",
    "application/yaml": "yaml yml",
    "application/zip": "zip whl npz",
    "application/zstd": "zst",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "image/gif": "gif",
    "image/jpeg": "jpeg jpg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/webp": "webp",
    "text/csv": "csv",
    "text/html": "htm html",
    "text/javascript": "js mjs cjs jsx",
    "text/markdown": "md",
    "text/plain": "txt log ini cfg",
    "text/typescript": "ts tsx mts cts",
    "text/vnd.graphviz": "dot gv",
    "text/x-c++hdr": "hpp hh hxx",
    "text/x-c++src": "cpp cc cxx",
    "text/x-chdr": "h",
    "text/x-csrc": "c",
    "text/x-diff": "diff patch",
    "text/x-go": "go",
    "text/x-java": "java",
    "text/x-perl": "pl",
    "text/x-python": "py",
    "text/x-r": "r",
    "text/x-rst": "rst",
    "text/x-ruby": "rb",
    "text/x-rust": "rs",
    "text/x-shellscript": "sh bash",
    "text/x-tex": "tex",
    f"{_OFFICE}.presentationml.presentation": "pptx",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    f"{_OPEN}.spreadsheet": "ods",
    f"{_OPEN}.text": "odt",
}
_TYPES = {f".{extension}": kind for kind, extensions in _EXTENSIONS.items() for extension in extensions.split()}
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
