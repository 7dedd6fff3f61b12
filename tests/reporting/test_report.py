"""`report` end to end on a run folder, and the seam for further formats."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchx.core.errors import BenchxError, StoreError, UsageError
from benchx.reporting import report
from benchx.reporting.csv_file import CsvSink
from benchx.reporting.document import Document
from benchx.reporting.sink import SINKS, Destination, Sink, register_sink


def test_a_report_is_csv_figures_and_markdown(run_folder: Path, tmp_path: Path) -> None:
    written = report([run_folder], tmp_path / "out" / "deep")
    names = {str(path.relative_to(written.folder)) for path in written.files}
    assert {"points.csv", "report.md", "figures/kda-prefill-device-time.png"} <= names
    assert all(path.stat().st_size for path in written.files)


def test_the_links_of_the_page_lead_to_files(run_folder: Path, tmp_path: Path) -> None:
    written = report([run_folder], tmp_path / "out")
    page = (written.folder / "report.md").read_text(encoding="utf-8")
    targets = [part.split(")")[0] for part in page.split("](")[1:]]
    assert targets
    assert all((written.folder / target).is_file() for target in targets)


def test_a_report_can_be_written_twice(run_folder: Path, tmp_path: Path) -> None:
    first = report([run_folder], tmp_path / "out", sinks=["csv", "markdown"])
    before = [path.read_bytes() for path in first.files]
    second = report([run_folder], tmp_path / "out", sinks=["csv", "markdown"])
    assert [path.read_bytes() for path in second.files] == before


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run folder"):
        report([tmp_path], tmp_path / "out")


def test_a_place_that_cannot_be_written_is_named(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(StoreError, match="can't write a report into"):
        report([run_folder], tmp_path / "file", sinks=["csv"])


def test_an_unknown_baseline_is_refused_with_the_nearest_word(
    run_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="did you mean 'alpha'"):
        report([run_folder], tmp_path / "out", baseline="alfa")


def test_the_baseline_can_be_chosen(run_folder: Path, tmp_path: Path) -> None:
    written = report([run_folder], tmp_path / "out", baseline="alpha", sinks=["markdown"])
    assert "Speed-up over alpha" in written.files[0].read_text(encoding="utf-8")


def test_a_run_given_twice_is_refused(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="given twice"):
        report([run_folder, run_folder], tmp_path / "out")


def test_an_unknown_format_is_refused(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown sink 'markdwn'; did you mean 'markdown'"):
        report([run_folder], tmp_path / "out", sinks=["markdwn"])


def test_a_second_sink_of_the_same_name_is_refused() -> None:
    with pytest.raises(BenchxError, match="registered twice"):
        register_sink(CsvSink())


def test_a_new_format_needs_one_class(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Names:
        name = "names"

        def write(self, document: Document, destination: Destination) -> tuple[Path, ...]:
            path = destination.need_folder() / "names.txt"
            path.write_text("\n".join(section.op for section in document.sections))
            return (path,)

    sink: Sink = Names()
    monkeypatch.setattr(SINKS, "_entries", {**SINKS._entries, sink.name: sink})
    written = report([run_folder], tmp_path / "out", sinks=["names"])
    assert written.files[0].read_text(encoding="utf-8") == "kda_prefill"


def test_importing_reporting_imports_neither_pandas_nor_matplotlib() -> None:
    code = (
        "import benchx.reporting, sys; print({'pandas', 'matplotlib', 'jinja2'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
