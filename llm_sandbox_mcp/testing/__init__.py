"""The promises of a backend, as tests that its author runs with pytest.

    from llm_sandbox_mcp.testing.fixtures import *
    from llm_sandbox_mcp.testing.processes import *

    @pytest.fixture
    def backend_name():
        return "mine"

`processes`, `copies`, `listening` and `sessions` each test one promise.
"""
