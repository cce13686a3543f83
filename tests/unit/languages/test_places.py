"""The environment of a language's processes: where they find programs, and what changes without a network."""

from dataclasses import replace

import pytest

from llm_sandbox_mcp.base.policy import NetworkMode
from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.languages.places import Places

LANGUAGES = included_languages()


def test_programs_of_libraries_come_after_all_others() -> None:
    python = Places(LANGUAGES["python"], environment="/opt/environments/x")
    places = Places(LANGUAGES["bash"], programs=("/home/libraries/python/bin",), companions=(python,))
    assert places.env("/usr/bin:/bin")["PATH"] == "/opt/environments/x/bin:/usr/bin:/bin:/home/libraries/python/bin"


@pytest.mark.parametrize(
    ("network", "index", "offline"), [("none", "", True), ("none", "http://x", False), ("open", "", False)]
)
def test_package_managers_fail_at_once_without_a_network_but_install_libraries(
    network: NetworkMode, index: str, *, offline: bool
) -> None:
    javascript = Places(LANGUAGES["javascript"], network=network, index=index)
    bash = replace(javascript, language=LANGUAGES["bash"], companions=(javascript,))
    for places in (javascript, bash):
        assert (places.env("").get("npm_config_offline") == "true") == offline
    set_by_profile = replace(javascript, settings={"npm_config_offline": "false"})
    assert set_by_profile.env("").get("npm_config_offline") == "false"
