"""From a server's answers to findings, and from findings to the fields a scenario should use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchx.serving.probe import OUTPUT_TOKENS, Answer, Answers

_RATE_HEADER = re.compile(r"x-ratelimit-|^retry-after$|^ratelimit", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One habit of a server.

    Attributes:
        name: What was looked at.
        value: What was found, in a word or two; `unknown` when it could not be told.
        note: What follows from it for a measurement; empty when nothing does.
    """

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """What a probe found out.

    Attributes:
        base_url: Of the server.
        api: Which API was asked.
        model: Which model.
        findings: In the order of a report.
        engine: Fields for `engine` in a scenario (name: endpoint).
    """

    base_url: str
    api: str
    model: str
    findings: tuple[Finding, ...]
    engine: Mapping[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """The value of one finding."""
        return next(found.value for found in self.findings if found.name == name)


def report(answers: Answers) -> ProbeReport:
    """All findings; needs a server that generates (see `probe.choose_api`)."""
    found = tuple(finding(answers) for finding in FINDINGS)
    endpoint = answers.endpoint
    return ProbeReport(
        base_url=endpoint.base_url,
        api=endpoint.api,
        model=endpoint.model,
        findings=found,
        engine=_engine_fields(answers),
    )


def _engine_fields(answers: Answers) -> dict[str, Any]:
    endpoint = answers.endpoint
    fields: dict[str, Any] = {
        "name": "endpoint",
        "base_url": endpoint.base_url,
        "model": endpoint.model,
        "api": endpoint.api,
    }
    if endpoint.api_key_env:
        fields["api_key_env"] = endpoint.api_key_env
    if _honours(answers["ignore_eos"]) and not answers["ignore_eos"].refused:
        fields["extra_body"] = {"ignore_eos": True}
    ids = answers.get("ids")
    if ids is not None and ids.generated:
        fields["token_ids"] = True
    if answers.metrics_url is not None:
        fields["metrics_url"] = answers.metrics_url
    return fields


def streaming(answers: Answers) -> Finding:
    """Whether the answer comes as events."""
    kind = _best(answers).exchange.headers.get("content-type", "no content type")
    if "event-stream" in kind:
        return Finding("streaming", "yes")
    return Finding("streaming", "no", f"sent {kind}: TTFT and TPOT can't be measured")


def role_chunk(answers: Answers) -> Finding:
    """Whether a chunk without generated text comes first."""
    early = _best(answers).facts.role_before_payload
    note = "the first chunk is not the first token" if early else ""
    return Finding("role_chunk", "yes" if early else "no", note)


def tokens_per_chunk(answers: Answers) -> Finding:
    """Tokens by the server's count over chunks that hold generated payload."""
    facts = _best(answers).facts
    if facts.completion_tokens is None or not facts.payloads:
        return Finding("tokens_per_chunk", "unknown", "no usage: chunks are counted as tokens")
    ratio = facts.completion_tokens / facts.payloads
    note = "" if ratio == 1 else "gaps between chunks are not gaps between tokens"
    return Finding("tokens_per_chunk", f"{ratio:.3g}", note)


def usage(answers: Answers) -> Finding:
    """When a stream ends with token counts, and where they are."""
    bare, asked = answers["bare"].facts, answers["usage"].facts
    if bare.usage_at is not None:
        return Finding("usage", "always", f"in {bare.usage_at}")
    if asked.usage_at is not None:
        return Finding("usage", "on request", f"in {asked.usage_at}")
    return Finding("usage", "never", "the client's own count is all there is")


def chunk_usage(answers: Answers) -> Finding:
    """Whether counts come with every chunk when asked for."""
    every = answers["chunk_usage"].facts.usage_at == "every_chunk"
    note = "tokens of each chunk are exact" if every else ""
    return Finding("chunk_usage", "yes" if every else "no", note)


def reasoning(answers: Answers) -> Finding:
    """Under which name reasoning is streamed."""
    name = _best(answers).facts.reasoning_field
    if name is None:
        return Finding("reasoning", "none seen")
    return Finding("reasoning", name, "TTFT is its first token; first visible text is apart")


def done_marker(answers: Answers) -> Finding:
    """Whether the stream says that it is complete."""
    done = _best(answers).facts.done
    note = "" if done else "completeness follows from finish_reason and the end of the body"
    return Finding("done_marker", "yes" if done else "no", note)


def sse_form(answers: Answers) -> Finding:
    """Legal things in the stream that some clients can't read."""
    exchange, facts = _best(answers).exchange, _best(answers).facts
    odd = [
        word
        for word, seen in (
            ("comments", facts.comments > 0),
            ("named events", bool(facts.named_events)),
            ("CRLF", b"\r\n" in exchange.body),
            ("no space after data:", re.search(rb"^data:[^ \r\n]", exchange.body, re.M)),
        )
        if seen
    ]
    return Finding("sse_form", ", ".join(odd) or "plain")


def max_tokens(answers: Answers) -> Finding:
    """Whether the limit on the output holds, and under which name."""
    facts, renamed = _best(answers).facts, answers.get("max_completion_tokens")
    if answers["bare"].refused and renamed is not None and renamed.generated:
        return Finding("max_tokens", "as max_completion_tokens")
    if facts.completion_tokens is None:
        held = facts.payloads <= OUTPUT_TOKENS
        return Finding("max_tokens", "unknown" if held else "ignored", "no usage to tell by")
    if facts.completion_tokens <= OUTPUT_TOKENS:
        return Finding("max_tokens", "honoured")
    note = f"{facts.completion_tokens} tokens for {OUTPUT_TOKENS}"
    return Finding("max_tokens", "exceeded", note)


def ignore_eos(answers: Answers) -> Finding:
    """Whether an exact output length can be had."""
    plain, config = answers["ignore_eos"], answers["generation_config"]
    if plain.generated:
        honoured = _honours(plain)
        note = "" if honoured else "answers end early: output lengths will differ"
        return Finding("ignore_eos", "honoured" if honoured else "no effect", note)
    if config.generated and _honours(config):
        return Finding("ignore_eos", "refused", "generation_config gives exact lengths instead")
    note = "output lengths are up to the model"
    return Finding("ignore_eos", "refused" if plain.refused else "fails", note)


def unknown_fields(answers: Answers) -> Finding:
    """What happens to fields that the server does not know."""
    answer = answers["unknown_field"]
    if answer.refused:
        note = f"HTTP {answer.exchange.status}: engine-specific fields must be left out"
        return Finding("unknown_fields", "refused", note)
    return Finding("unknown_fields", "ignored" if answer.generated else "fails")


def token_ids(answers: Answers) -> Finding:
    """Whether prompts may be ids, and whether ids come back."""
    asked, back = answers.get("ids"), answers.get("ids_back")
    if asked is None or back is None:
        return Finding("token_ids", "not with this API")
    words = ["in"] if asked.generated else []
    words += ["out"] if back.facts.token_ids else []
    note = "exact prompts need no tokenizer" if asked.generated else ""
    return Finding("token_ids", " and ".join(words) or "no", note)


def cached_tokens(answers: Answers) -> Finding:
    """Whether the second of two equal prompts was (said to be) cached."""
    if not answers["again"].generated:
        return Finding("cached_tokens", "unknown", answers["again"].words)
    first, again = answers["first"].facts, answers["again"].facts
    if again.cached_tokens is None:
        speedup = _first_token_s(answers["first"]), _first_token_s(answers["again"])
        note = "a prefix cache can't be seen in usage"
        if None not in speedup and speedup[1] * 3 < speedup[0]:  # type: ignore[operator]
            note = f"not told, yet TTFT fell from {speedup[0]:.3g} s to {speedup[1]:.3g} s"
        return Finding("cached_tokens", "not told", note)
    if again.cached_tokens == 0:
        return Finding("cached_tokens", "told, none", "no prefix cache, or one with larger blocks")
    total = again.prompt_tokens or 0
    note = (
        f"{again.cached_tokens} of {total} on the second time, {first.cached_tokens} on the first"
    )
    return Finding("cached_tokens", "told", note)


def not_streamed(answers: Answers) -> Finding:
    """Whether a whole answer works too."""
    answer = answers["whole"]
    works = answer.generated
    return Finding("not_streamed", "works" if works else "fails", "" if works else answer.words)


def cost(answers: Answers) -> Finding:
    """Whether the server says what it charges."""
    block = _best(answers).facts.usage or {}
    value = block.get("cost")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Finding("cost", "told", f"{value:g} for {OUTPUT_TOKENS} tokens")
    return Finding("cost", "not told")


def rate_limits(answers: Answers) -> Finding:
    """Headers that tell of limits."""
    headers = _best(answers).exchange.headers
    named = sorted(name for name in headers if _RATE_HEADER.search(name))
    limited = [name for name, one in answers.by_name.items() if one.exchange.status == 429]
    note = f"429 for: {', '.join(limited)}" if limited else ""
    return Finding("rate_limits", ", ".join(named) or "no header", note)


def metrics(answers: Answers) -> Finding:
    """Whether the server tells metrics that benchx knows, at the usual address."""
    if answers.metrics_url is None:
        return Finding("metrics", "not found", "no queue, cache or prefill time from the server")
    return Finding("metrics", "told", answers.metrics_url)


FINDINGS: tuple[Callable[[Answers], Finding], ...] = (
    streaming, role_chunk, tokens_per_chunk, usage, chunk_usage, reasoning, done_marker, sse_form,
    max_tokens, ignore_eos, unknown_fields, token_ids, cached_tokens, not_streamed, cost,
    rate_limits, metrics,
)  # fmt: skip


def _best(answers: Answers) -> Answer:
    """The most telling answer that worked: with usage, else without."""
    for name in ("usage", "bare", "max_completion_tokens"):
        answer = answers.get(name)
        if answer is not None and answer.generated:
            return answer
    return answers["bare"]


def _honours(answer: Answer) -> bool:
    """Whether exactly the tokens that were asked for came, and the limit ended it."""
    facts = answer.facts
    counted = facts.completion_tokens or facts.payloads
    return answer.generated and counted == OUTPUT_TOKENS and facts.finish_reason == "length"


def _first_token_s(answer: Answer) -> float | None:
    pieces = answer.exchange.pieces
    return pieces[0][0] if answer.generated and pieces else None
