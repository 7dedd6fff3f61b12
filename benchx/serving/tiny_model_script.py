"""Writes a tiny random model and its tokenizer; run as a file by the Python that has transformers.

Usage: `python tiny_model_script.py FOLDER SPEC`, SPEC being the JSON of `tiny_model.TinyModel`.
Imports nothing of ours, since the engine's Python need not have benchx.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SPECIAL = ("<|pad|>", "<|bos|>", "<|eos|>", "<|role|>", "<|end|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|role|>{{ message['role'] }}\n{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|role|>assistant\n{% endif %}"
)
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "il")]


def corpus(lines: int, seed: int) -> Iterator[str]:
    """Lines of made-up words whose frequencies fall as 1/rank, as those of real words do."""
    draw = random.Random(seed)
    count = 20_000
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(count)]
    weights = [1 / (rank + 2) for rank in range(count)]
    for _ in range(lines):
        text = " ".join(draw.choices(words, weights, k=40))
        yield f"{text.capitalize()}, {draw.randint(0, 9999)}.\n"


def write_tokenizer(folder: Path, vocabulary: int, seed: int) -> int:
    """Train a byte-level BPE on the corpus and write it; returns the size of its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus(3000, seed), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token=SPECIAL[0], bos_token=SPECIAL[1], eos_token=SPECIAL[2]
    )
    fast.chat_template = _CHAT_TEMPLATE
    fast.save_pretrained(folder)
    return int(bpe.get_vocab_size())


def write_model(folder: Path, config: dict[str, Any], dtype: str, seed: int) -> None:
    """Random weights of the configured shape, by the initialisation of transformers."""
    from transformers import AutoConfig, AutoModelForCausalLM, set_seed

    set_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=dtype)
    # With logits of zero, special tokens and single bytes (they come first in the vocabulary) are
    # never the likeliest: no answer ends early, and no half character is held back by a server.
    model.get_output_embeddings().weight.data[: len(SPECIAL) + 256].zero_()
    model.save_pretrained(folder)


def main(folder: Path, spec: dict[str, Any]) -> None:
    """Write the tokenizer, then a model that fits it."""
    size = write_tokenizer(folder, spec["vocabulary"], spec["seed"])
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = spec["config"] | tokens | {"vocab_size": size}
    write_model(folder, config, spec["dtype"], spec["seed"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
