"""Errors and next steps in the words of the tools."""

from ..base.errors import BadHostPath
from ..base.messages import Message, Step, Words, worded

UNFORESEEN = "the server had an unexpected error, which its log explains; try again"

TOOLS: Words = {
    Step.MORE_TIME: "give a larger timeout_seconds or do less per call",
    Step.DATA_AS_FILE: "put data into a file with copy_file",
    Step.OTHER_ARTIFACT: "call get_artifacts to list them",
    Step.OPEN_SESSION: "call without session_id to open a new one",
    Step.INSTALL: "call install_libraries with {library}, language {language} and this session_id",
    Step.RESTART: 'restart with manage_session(action="restart"), which keeps files and libraries',
    Step.READ_PARTS: "get_artifacts returns parts of it, by offset and length",
    Step.GIVE_INPUT: "give the text that the code reads in stdin",
    Step.END_SESSION: "do it in the code, or run the code with keep_session=false",
    Step.COPY_FILES: "copy_file copies single files, by host_path",
    Step.SAVED_SESSIONS: 'manage_session(action="saved") lists those that exist',
    Step.BRING_DATA: "copy_file brings data in; only the operator can allow hosts (network.domains in the profile)",
}


def in_words(message: Message) -> str:
    """An error or a note in the words of the tools."""
    line = worded(message, TOOLS)
    return f"host_path: {line}" if isinstance(message, BadHostPath) else line
