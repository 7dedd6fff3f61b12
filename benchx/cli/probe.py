"""`benchx probe`: how a server behaves, and which fields a scenario should use for it."""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from benchx.cli.arguments import AsJson
from benchx.cli.terminal import print_json, print_rows, stderr, stdout
from benchx.core.errors import UsageError

if TYPE_CHECKING:
    from benchx.serving.request import Endpoint


class Api(StrEnum):
    """Which endpoint of a server to ask."""

    AUTO = "auto"
    COMPLETIONS = "completions"
    CHAT = "chat"


def probe(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Base URL of the server, up to and including /v1.")
    ],
    *,
    model: Annotated[
        str | None, typer.Option("--model", help="Model name (default: the only one served).")
    ] = None,
    api: Annotated[
        Api, typer.Option("--api", help="Which API to use; auto: the first that works.")
    ] = Api.AUTO,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", help="Environment variable that holds the key.")
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            max=86400,
            help="Time limit per request (about a dozen requests).",
        ),
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Find out how a server behaves.

    Asks a dozen small questions: streaming, usage, token ids, caching, exact lengths. Prints its
    habits and the `engine` fields that a scenario should use for it.
    """
    import yaml

    from benchx.serving.probe import ask_all
    from benchx.serving.probe_findings import report

    endpoint = _endpoint(url, model, api, api_key_env, timeout_s)
    answers = ask_all(
        endpoint, timeout_s=timeout_s, on_question=lambda name: stderr().print(f"asking: {name}")
    )
    found = report(answers)
    if as_json:
        print_json(asdict(found))
        return
    rows = [
        {"finding": one.name, "value": one.value, "what follows": one.note}
        for one in found.findings
    ]
    print_rows(stdout(), rows)
    section = yaml.safe_dump({"engine": dict(found.engine)}, sort_keys=False, width=1000)
    stdout().print(section.rstrip(), soft_wrap=True)


def _endpoint(
    url: str, model: str | None, api: Api, api_key_env: str | None, timeout_s: float
) -> Endpoint:
    from benchx.serving.exchange import get
    from benchx.serving.http_wire import Address
    from benchx.serving.probe import api_of, choose_api, models
    from benchx.serving.request import Endpoint

    Address.of(url)  # a malformed URL is reported as it was given
    asked = api_of(api)
    endpoint = Endpoint(
        base_url=url.rstrip("/"), api=asked or "completions", model="", api_key_env=api_key_env
    )
    endpoint.secret_headers()  # a missing key is reported before anything is sent
    if model is None:
        listed = models(endpoint)
        if not listed:
            said = get(endpoint.at("/models"), timeout_s=timeout_s, endpoint=endpoint).summary()
            raise UsageError(
                f"{endpoint.at('/models')} lists no model: {said}",
                hint="check that the server is up and that the URL ends in /v1, or choose a model "
                "with --model NAME",
            )
        if len(listed) > 1:
            known = ", ".join(listed[:5])
            more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
            raise UsageError(
                f"{url} serves several models ({known}{more})",
                hint="choose one with --model NAME",
            )
        model = listed[0]
    endpoint = replace(endpoint, model=model)
    return endpoint if asked else choose_api(endpoint, timeout_s=timeout_s)
