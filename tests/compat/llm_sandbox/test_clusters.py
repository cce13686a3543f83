"""A client of the package `kubernetes` names cluster and user; settings that cannot be carried over are an error."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from kubernetes.aio import client as aio
from kubernetes.client import ApiClient, Configuration, CoreV1Api, V1Pod

from llm_sandbox_mcp import ValidationError
from llm_sandbox_mcp.backends.kubernetes.finding import find_cluster
from llm_sandbox_mcp.compat.llm_sandbox.options import Options
from llm_sandbox_mcp.compat.llm_sandbox.portal import portal
from tests.engines import table


@pytest.fixture
def configuration(monkeypatch: pytest.MonkeyPatch) -> Configuration:
    monkeypatch.delenv("LLM_SANDBOX_PROFILE", raising=False)
    made = Configuration(host="https://127.0.0.1:6443/prefix")
    made.api_key["authorization"], made.api_key_prefix["authorization"] = "secret", "Bearer"
    return made


@pytest.fixture
def client(configuration: Configuration) -> Iterator[ApiClient]:
    with ApiClient(configuration) as made:
        yield made


def kubeconfig_of(client: Any, **arguments: Any) -> str:
    profile = Options(client=client, **arguments).profile()
    assert profile.backend.name == "kubernetes"
    settings = table(profile, "kubernetes")
    assert settings.context == ""
    return str(settings.kubeconfig)


def found(kubeconfig: str) -> tuple[aio.Configuration, str]:
    """The configuration that the backend reads from the file, and the namespace."""
    made = aio.Configuration()
    return made, anyio.run(find_cluster, kubeconfig, "", {}, made)


async def key_of(configuration: aio.Configuration) -> str | None:
    key: str | None = await configuration.get_api_key_with_prefix("BearerToken")
    return key


@pytest.mark.parametrize("backend", ["auto", "kubernetes"])
def test_the_address_token_and_certificates_of_the_client_are_used(
    client: ApiClient, tmp_path: Path, backend: str
) -> None:
    files = [tmp_path / name for name in ("ca", "cert", "key")]
    for file in files:
        file.touch()
    configuration = client.configuration
    configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file = map(str, files)
    configuration.tls_server_name = "cluster.example"
    made, namespace = found(kubeconfig_of(CoreV1Api(client), backend=backend))
    assert (made.host, made.verify_ssl, made.tls_server_name) == (configuration.host, True, "cluster.example")
    assert [made.ssl_ca_cert, made.cert_file, made.key_file] == [str(file) for file in files]
    assert (anyio.run(key_of, made), namespace) == ("Bearer secret", "")


def test_settings_that_the_client_does_not_have_stay_empty(client: ApiClient) -> None:
    client.configuration.api_key.clear()
    client.configuration.verify_ssl = False
    made, _ = found(kubeconfig_of(client))
    assert (made.ssl_ca_cert, made.cert_file, made.verify_ssl) == (None, None, False)
    assert anyio.run(key_of, made) is None


def test_the_token_is_renewed_by_the_hook_of_the_client(client: ApiClient) -> None:
    def renew(configuration: Configuration) -> None:
        configuration.api_key["authorization"] = "renewed"

    first = kubeconfig_of(client)
    assert kubeconfig_of(client) == first
    client.configuration.refresh_api_key_hook = renew
    second = kubeconfig_of(client)
    assert [anyio.run(key_of, found(file)[0]) for file in (first, second)] == ["Bearer secret", "Bearer renewed"]


def test_the_kubeconfig_is_only_in_memory_and_is_gone_after_close(client: ApiClient) -> None:
    file = kubeconfig_of(client)
    assert os.readlink(file).startswith("/memfd:")
    portal.close()
    assert not os.path.exists(file) or not os.readlink(file).startswith("/memfd:")


def with_header(client: ApiClient) -> None:
    client.set_default_header("Impersonate-User", "another")


def with_key(key: str) -> Callable[[ApiClient], None]:
    def change(client: ApiClient) -> None:
        client.configuration.api_key_prefix.clear()
        client.configuration.api_key["authorization"] = key

    return change


def having(name: str, value: object) -> Callable[[ApiClient], None]:
    return lambda client: setattr(client.configuration, name, value)


REFUSED: list[tuple[Callable[[ApiClient], None], str]] = [
    (with_header, "its default_headers is not carried over"),
    (lambda client: setattr(client, "cookie", "a=b"), "its cookie is not carried over"),
    (having("proxy", "http://proxy.example:3128"), "its proxy is not carried over"),
    (having("assert_hostname", False), "its assert_hostname is not carried over"),
    (having("ca_cert_data", "-----BEGIN CERTIFICATE-----"), "its ca_cert_data is not carried over"),
    (having("ssl_ca_cert", "/nonexistent/ca"), "the file /nonexistent/ca in its configuration does not exist"),
    (with_key("secret"), "its api_key is not a bearer token"),
    (with_key("Basic c2VjcmV0"), "its api_key is not a bearer token"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_settings_that_cannot_be_carried_over_are_refused(
    client: ApiClient, change: Callable[[ApiClient], None], message: str
) -> None:
    change(client)
    with pytest.raises(ValidationError, match=f"backend kubernetes: client: {message}") as refused:
        kubeconfig_of(client)
    assert "c2VjcmV0" not in str(refused.value)


def test_a_client_of_the_wrong_kind_is_refused(client: ApiClient) -> None:
    with pytest.raises(ValidationError, match="backend docker: client: it is for kubernetes"):
        Options(backend="docker", client=client).profile()
    for other in (V1Pod(), aio.ApiClient(aio.Configuration())):
        with pytest.raises(
            ValidationError, match=rf"backend kubernetes: client: it is a {type(other).__name__}; give a"
        ):
            Options(client=other).profile()
