"""The library for programs that are not async, under the names and with the behaviour of LLM Sandbox."""
