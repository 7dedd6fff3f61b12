"""A run on fake workers, as a process of its own: `fake_run.py SCENARIO OUT [RESUME]`.

Prints the summary as JSON, or the error and its exit code as the command line would.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchx.core.axes import AxisSpec
from benchx.core.errors import BenchxError
from benchx.runner import run
from benchx.runner.local import LocalExecutor
from benchx.scenario import OpWords, Vocabulary, load

BACKENDS = (
    *("good", "slow", "hang", "segfault", "killed", "exits", "garbles", "noisy"),
    *("last_words", "family", "holds_pipe", "reads"),
)
WORDS = Vocabulary(
    ops={
        "fake": OpWords(
            axes={
                "size": AxisSpec(type="int", doc="size", default=1),
                "batch": AxisSpec(type="int", doc="batch", default=1),
            },
            backends=BACKENDS,
            problem=lambda params: None,
        )
    }
)


def main() -> None:
    scenario, out_dir, *rest = sys.argv[1:]
    try:
        summary = run(
            load(scenario),
            WORDS,
            out_dir=Path(out_dir),
            resume=Path(rest[0]) if rest else None,
            executor=LocalExecutor("fake_worker"),
        )
    except BenchxError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    print(json.dumps({"kept": summary.kept, "written": summary.written, "notes": summary.notes}))
    sys.exit(summary.exit_code)


if __name__ == "__main__":
    main()
