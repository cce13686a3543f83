"""One run, from the request to its result: the exchange with what runs the code, the limits, and the verdict."""
