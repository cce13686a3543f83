"""One run, from a request to what became of it: the conversation with what runs code, its bounds, and the verdict."""
