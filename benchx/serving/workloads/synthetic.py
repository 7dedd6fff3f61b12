"""Made-up prompts: `random`, and `shared_prefix` in groups."""

from __future__ import annotations

from collections.abc import Sequence

from benchx.core.errors import UsageError
from benchx.serving.request import Request
from benchx.serving.workloads.base import DATASETS, Dataset, Draw, WorkloadSettings


def random_prompts(settings: WorkloadSettings, draw: Draw) -> Sequence[Request]:
    """Prompts that share nothing; lengths are the same in every point of a sweep."""
    lengths, made = draw.lengths("lengths"), []
    for index in range(settings.need("requests")):
        tokens = settings.need("input_len").draw(lengths)
        output = settings.need("output_len").draw(lengths)
        prompt = draw.prompts().make(draw.stream("prompt", index), tokens)
        exact = settings.exact_output is not False
        made.append(draw.request(index, prompt, output, exact=exact, input_tokens=tokens))
    return made


def shared_prefix(settings: WorkloadSettings, draw: Draw) -> Sequence[Request]:
    """Groups of prompts that begin alike: `prefix_len` shared tokens, then `input_len` own ones.

    Groups take turns, so that a cache must hold all of them at once.
    """
    prefix_len, groups = settings.need("prefix_len"), settings.groups
    if groups < 1:
        raise UsageError(f"workload.groups: got {groups}; expected at least 1")
    prompts = draw.prompts()
    prefixes = [prompts.make(draw.stream("prefix", group), prefix_len) for group in range(groups)]
    lengths, made = draw.lengths("lengths"), []
    for index in range(settings.need("requests")):
        tokens = prefix_len + settings.need("input_len").draw(lengths)
        output = settings.need("output_len").draw(lengths)
        group = index % groups
        prompt = prompts.make(draw.stream("prompt", index), tokens, after=prefixes[group])
        exact = settings.exact_output is not False
        label = f"group {group}, {'first' if index < groups else 'later'}"
        made.append(
            draw.request(index, prompt, output, exact=exact, input_tokens=tokens, label=label)
        )
    return made


_MADE_UP = ("requests", "input_len", "output_len")

DATASETS.add("random", Dataset(random_prompts, needs=_MADE_UP))
DATASETS.add("shared_prefix", Dataset(shared_prefix, needs=(*_MADE_UP, "prefix_len")))
