"""Is a report one whole file that says what the run says, renders without errors and asks the network for nothing?"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

import sim
from sim.cli import main
from sim.errors import InputError
from sim.metrics.counted import COUNTED
from sim.metrics.wording import facts, number, seconds
from sim.report.html import report
from sim.report.html_findings import binds, honesty, parts
from sim.sweep.provenance import version

RUN = {"name": "reported <&> run", "seed": 3, "duration": 400, "warmup": 20, "model": "llama-3.1-8b",
       "hardware": "dgx-h100", "replicas": 1, "engine": {"pool": "12 GiB"}, "tiers": {"dram": {"capacity": "64 GiB"}},
       "retention": "keep", "slo": {"ttft_resumed": {"p95": "10 ms"}},
       "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 12}}}}
AXES = {"grid": {"workload.arrivals.closed.concurrency": [2, 4], "retention.policy": ["keep", "drop"]}}
CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
                 if (found := shutil.which(name))), None)
VOID = {"meta", "link", "br", "img", "hr", "input"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def result(home):
    return sim.run(RUN, home / "run")


@pytest.fixture(scope="module")
def page(home, result):
    return report(home / "run")


@pytest.fixture(scope="module")
def swept(home):
    base = {**RUN, "duration": 150, "name": "swept"}
    sim.sweep(base, home / "sweep", axes=AXES, replications=2, jobs=1)
    return report(home / "sweep", home / "swept.html")


class Reader(HTMLParser):
    """Checks that tags close in order, and collects what a browser would fetch, ids and text."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.ids, self.said = [], [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "id" in given:
            self.ids.append(given["id"])
        for name in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
            if name in given and not given[name].startswith(("#", "data:")):
                self.fetched.append((tag, given[name]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.said.append(data)


def read(path):
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.parametrize("which", ["page", "swept"])
def test_the_file_is_well_formed_and_fetches_nothing(which, request):
    path = request.getfixturevalue(which)
    found = read(path)
    assert found.fetched == []
    assert len(found.ids) == len(set(found.ids))
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"url\((?!#|\"#|'#)|@import|fetch\(|XMLHttpRequest|WebSocket", text)
    assert "default-src 'none'" in text


def test_a_run_says_its_figures_and_its_scenario(page, result):
    said = " ".join(" ".join(read(page).said).split())
    summary = result.summary
    assert "reported <&> run" in said  # escaped in the file, whole on the screen
    assert seconds(summary["ttft_s"]["resumed"]["p95"]) in said
    assert number(summary["counts"]["evictions"]) in said
    assert "against a limit of 10 ms: missed" in said
    assert f"Run by kvplan {version()}." in said
    assert "95 % intervals, within one run" in said
    assert "concurrency: 12" in said
    assert "provenance:" in said
    for title in ("What binds, and why", "Figures", "Latencies", "Ledgers and counts", "Pauses by tool",
                  "Slowest turns", "How far to trust this", "Scenario"):
        assert title in said
    assert page.read_text(encoding="utf-8").count("<figure>") >= 7


def test_a_sweep_says_its_points(swept):
    said = " ".join(" ".join(read(swept).said).split())
    assert "4 points over workload.arrivals.closed.concurrency, retention.policy; 8 runs, 0 failed" in said
    assert "Every point" in said
    assert swept.read_text(encoding="utf-8").count("<figure>") >= 4


def test_a_sweep_says_of_each_point_whether_it_was_steady(home, swept, tmp_path):
    import pandas as pd

    from sim.metrics.steady import WORST
    from sim.report.sweeps import STEADY

    folder = tmp_path / "sweep"
    shutil.copytree(home / "sweep", folder)
    frame = pd.read_parquet(folder / "points.parquet")
    words = dict(zip(range(4), WORST[:4], strict=True))
    frame.assign(steady=frame["point"].map(words)).to_parquet(folder / "points.parquet")
    text = report(folder, tmp_path / "states.html").read_text(encoding="utf-8")
    said = " ".join(" ".join(read(tmp_path / "states.html").said).split())
    for word in words.values():
        assert f"{word.capitalize()}. At 1 of 4 points" in said, word
        assert f">{STEADY.get(word, word)}</td>" in text, word
    frame.assign(steady="steady").to_parquet(folder / "points.parquet")
    fine = report(folder, tmp_path / "fine.html")
    assert "At 4 of 4 points" not in " ".join(read(fine).said)
    assert fine.read_text(encoding="utf-8").count(">yes</td>") == 4
    frame.drop(columns="steady").to_parquet(folder / "points.parquet")
    assert "Every point" in " ".join(read(report(folder, tmp_path / "older.html")).said)


def test_a_sweep_with_failed_runs_lists_their_errors(home, swept, tmp_path):
    import pandas as pd

    broken = tmp_path / "sweep"
    shutil.copytree(home / "sweep", broken)
    frame = pd.read_parquet(broken / "points.parquet")
    figures = [name for name in frame.columns[frame.columns.get_loc("error") + 1:] if frame[name].dtype == "float64"]
    frame.loc[0, figures] = float("nan")
    frame["status"] = frame["status"].where(frame.index != 0, "failed")
    frame["error"] = frame["error"].astype(object).where(frame.index != 0, "ran out of <memory>")
    frame.to_parquet(broken / "points.parquet")
    assert "ran out of <memory>" in " ".join(read(report(broken, tmp_path / "one.html")).said)
    frame.assign(status="failed", error="no").to_parquet(broken / "points.parquet")
    assert "Every run failed" in " ".join(read(report(broken, tmp_path / "none.html")).said)


def test_the_same_run_gives_the_same_bytes(home, page, tmp_path):
    again = report(home / "run", tmp_path / "again.html")
    assert again.read_bytes() == page.read_bytes()


def summary_of(result, **changes):
    made = json.loads(json.dumps(result.summary))
    for path, value in changes.items():
        *way, last = path.split("__")
        at = made
        for key in way:
            at = at[key]
        at[last] = value
    return made


def test_sentences_follow_the_ledgers(result):
    ledger = dict.fromkeys(result.summary["ledger"]["turn_s"], 0.0) | {"decode": 3.0, "queue_blocks": 1.0}
    said = {item.topic: item for item in binds(summary_of(result, ledger__turn_s=ledger, turn_s__mean=4.0))}
    assert said["Turns"].text == "A turn takes 4 s on average: 75% decoding and 25% waiting for KV blocks."
    assert next(iter(said)).startswith("What binds: ")
    assert said[next(iter(said))].mood == "first"


def test_what_shakes_a_run_is_said(result):
    shaken = summary_of(result, checks__stable=False, checks__warmup_settled=False, checks__little_residual=0.5,
                        counts__preemptions=3, counts__rejections=2, checks__shorter_than_trajectories=False)
    said = [*binds(shaken), *honesty(shaken, result.scenario)]
    bad = {item.topic for item in said if item.mood == "bad"}
    assert {"Not steady", "Steady or not", "Warm-up", "Little's law", "Preemptions", "Rejections"} <= bad
    short = binds(summary_of(result, checks__shorter_than_trajectories=True))
    assert "Too short" in {item.topic for item in short if item.mood == "bad"}


def test_a_closed_load_that_queues_is_steady_at_its_limit(result):
    queued = dict.fromkeys(result.summary["ledger"]["turn_s"], 0.0) | {"decode": 3.0, "queue_blocks": 1.0}
    calm = queued | {"queue_blocks": 0.1}
    for turns, closed, topic in ((queued, True, True), (calm, True, False), (queued, False, False)):
        summary = summary_of(result, ledger__turn_s=turns, checks__stable=True, checks__closed_load=closed,
                             checks__shorter_than_trajectories=False)
        assert ("Steady, at its limit" in {item.topic for item in binds(summary)}) is topic
        (said,) = [item for item in honesty(summary, result.scenario) if item.topic == "Steady or not"]
        assert said.mood == ""
        assert ("what runs short is memory (KV blocks)" in said.text) is topic
        assert ("for 25% of their time" in said.text) is (turns is queued)
    shaky = summary_of(result, checks__stable=False, checks__shorter_than_trajectories=False)
    assert dict(facts(shaky))["steady?"].startswith("NOT steady")


def test_look_ups_beyond_a_table_are_shares(result):
    summary = summary_of(result, counts__outside_measured_linear=5, counts__lookups_measured_linear=20)
    assert "linear 25% of look-ups" in dict(facts(summary))["beyond tables"]
    assert "linear" not in dict(facts(summary))["counts"]
    assert any("linear 25% of look-ups" in item.text for item in honesty(summary, result.scenario))


def test_counts_say_what_they_count(result):
    assert set(result.summary["counts"]) <= set(COUNTED)


def test_an_empty_ledger_is_nothing():
    assert parts({"a": 0.0}, {}) == "nothing"


def test_a_run_without_turns_is_reported(tmp_path):
    sim.run({**RUN, "duration": 0.01, "warmup": 0}, tmp_path / "run")
    assert "no turn finished" in " ".join(read(report(tmp_path / "run")).said).lower()


def test_command_line_and_bad_folders(home, page, tmp_path, capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main(["report", *arguments])
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    status, out, _ = run(str(home / "run"), "-o", str(tmp_path / "r.html"))
    assert (status, out.strip()) == (0, str(tmp_path / "r.html"))
    status, _, err = run(str(tmp_path))
    assert (status, err.count("\n")) == (2, 1)
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    assert run(str(home / "run"), "-o", str(tmp_path / "mine.html"))[0] == 2
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"


def test_damaged_files_are_input_errors(home, page, tmp_path):
    broken = tmp_path / "run"
    shutil.copytree(home / "run", broken)
    (broken / "turns.parquet").write_bytes(b"nonsense")
    with pytest.raises(InputError):
        report(broken)
    (broken / "turns.parquet").unlink()
    with pytest.raises(InputError, match="missing"):
        report(broken)


def opened(path, tmp_path):
    """Open a file in a headless browser: the document it made of it, lines of its console, addresses it asked for."""
    log = tmp_path / "net.json"
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
         "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
         "--enable-logging=stderr", "--virtual-time-budget=3000", f"--log-net-log={log}", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console, own_requests(log.read_text(encoding="utf-8"))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("which", ["page", "swept"])
def test_a_real_browser_renders_it_without_errors_or_requests(which, request, tmp_path):
    document, console, asked = opened(request.getfixturevalue(which), tmp_path)
    assert 'data-ready="yes"' in document  # the script ran to its end
    assert document.count("<svg") >= 4
    assert console == []
    assert asked == []


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_page_that_errs_and_asks_would_be_caught(tmp_path):
    wrong = tmp_path / "wrong.html"
    wrong.write_text('<img src="http://127.0.0.1:9/x.png"><script>nope()</script>')
    _, console, asked = opened(wrong, tmp_path)
    assert len(console) == 1
    assert asked == ["http://127.0.0.1:9/x.png"]


def own_requests(log):
    """Return what pages asked the network for; what the browser asks for itself has no origin."""
    text = log if log.rstrip().endswith("}") else log.rstrip().rstrip(",") + "]}"
    found = json.loads(text)
    names = {number_: name for name, number_ in found["constants"]["logEventTypes"].items()}
    asked = [event["params"] for event in found["events"]
             if names[event["type"]] == "URL_REQUEST_START_JOB" and "url" in event.get("params", {})]
    return [params["url"] for params in asked if not params["url"].startswith(("file:", "data:", "blob:"))
            and params.get("initiator") != "not an origin"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_click_on_a_head_sorts_its_table(page, tmp_path):
    probe = ("<script>const t = document.querySelectorAll('table.sortable')[1];"
             "const head = t.tHead.rows[0].cells[2].firstElementChild; head.click();"
             "const up = [...t.tBodies[0].rows].map(r => parseFloat(r.cells[2].dataset.key)).filter(x => !isNaN(x));"
             "head.click(); const down = [...t.tBodies[0].rows].map(r => parseFloat(r.cells[2].dataset.key))"
             ".filter(x => !isNaN(x));"
             "document.documentElement.dataset.up = up.every((x, i) => !i || up[i - 1] <= x);"
             "document.documentElement.dataset.down = down.every((x, i) => !i || down[i - 1] >= x);</script></body>")
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text(encoding="utf-8").replace("</body>", probe), encoding="utf-8")
    document, console, _ = opened(probed, tmp_path)
    assert 'data-up="true"' in document
    assert 'data-down="true"' in document
    assert console == []
