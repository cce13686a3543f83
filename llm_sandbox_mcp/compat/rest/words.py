"""Next steps in the words of this API."""

from ...base.messages import Message, Step, Words, worded

REQUESTS: Words = {
    Step.MORE_TIME: "give a larger timeout_seconds or do less per call",
    Step.DATA_AS_FILE: "POST data to /files and read it from there",
    Step.OTHER_ARTIFACT: "GET /artifacts to list them",
    Step.READ_PARTS: "GET /artifacts/{name} returns it",
    Step.RESTART: "install them in another session_id before any code runs",
    Step.OPEN_SESSION: "use another session_id",
    Step.INSTALL: "POST {library}, language {language}, to /libraries",
    Step.GIVE_INPUT: "POST the text to /files and read it from there",
    Step.END_SESSION: "do it in the code",
    Step.COPY_FILES: "POST single files to /files",
    Step.SAVED_SESSIONS: "this API saves no sessions",
    Step.BRING_DATA: "POST data to /files; only the operator can allow hosts (network.domains in the profile)",
}


def in_words(message: Message) -> str:
    """An error or a note in the words of this API."""
    return worded(message, REQUESTS)
