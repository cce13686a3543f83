"""The wording of next steps for the command line."""

from ..base.messages import Message, Step, Words, worded

OPTIONS: Words = {
    Step.MORE_TIME: "give a larger --timeout, or do less",
    Step.DATA_AS_FILE: "put data into a file and bring it in with --file",
    Step.INSTALL: "install {library} with --library",
    Step.GIVE_INPUT: "give the text that the program reads with --stdin FILE, or wait for it with --stdin -",
    Step.COPY_FILES: "bring single files in with --file",
    Step.SAVED_SESSIONS: "`llm-sandbox-mcp sessions` lists those that exist",
    Step.BRING_DATA: "bring data in with --file, or allow hosts (network.domains in the profile)",
}


def in_words(message: Message) -> str:
    """An error or a note, as it is worded for a user at a terminal."""
    return worded(message, OPTIONS)
