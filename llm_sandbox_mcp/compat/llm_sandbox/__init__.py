"""The library for programs that are not async, with the names and the behaviour of LLM Sandbox."""
