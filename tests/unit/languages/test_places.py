"""The environment of a language's processes: where they find programs, and what changes without a network."""

from dataclasses import replace

import pytest

from llm_sandbox_mcp.backends.layout import LIBRARIES
from llm_sandbox_mcp.base.policy import NetworkMode
from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.languages.places import Places

LANGUAGES = included_languages()


def test_programs_of_libraries_come_after_all_others() -> None:
    python = Places(LANGUAGES["python"], environment="/opt/environments/x")
    places = Places(LANGUAGES["bash"], everywhere=(LANGUAGES["python"], LANGUAGES["go"]), companions=(python,))
    assert places.env("/usr/bin:/bin")["PATH"] == (f"/opt/environments/x/bin:/usr/bin:/bin:{LIBRARIES}/python/bin")


def test_what_programs_of_libraries_need_is_there_in_all_languages_and_settings_of_the_own_count() -> None:
    places = Places(LANGUAGES["python"], everywhere=tuple(LANGUAGES.values()), network="open")
    found = places.env("")
    assert (found["GEM_HOME"], found["npm_config_prefix"]) == (f"{LIBRARIES}/ruby", f"{LIBRARIES}/javascript")
    assert "NODE_PATH" not in found
    assert replace(places, settings={"GEM_HOME": "/x"}).env("")["GEM_HOME"] == "/x"


@pytest.mark.parametrize(
    ("network", "index", "offline"), [("none", "", True), ("none", "http://x", False), ("open", "", False)]
)
def test_package_managers_fail_at_once_without_a_network_but_install_libraries(
    network: NetworkMode, index: str, *, offline: bool
) -> None:
    javascript = Places(LANGUAGES["javascript"], network=network, index=index)
    bash = replace(javascript, language=LANGUAGES["bash"], companions=(javascript,))
    python = replace(javascript, language=LANGUAGES["python"], everywhere=tuple(LANGUAGES.values()))
    for places in (javascript, bash, python):
        assert (places.env("").get("npm_config_offline") == "true") == offline
    set_by_profile = replace(javascript, settings={"npm_config_offline": "false"})
    assert set_by_profile.env("").get("npm_config_offline") == "false"
