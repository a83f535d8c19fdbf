"""The page in a real browser: its help, its updates, its use by keyboard and on a phone."""

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import browser
import pytest
from msgspec.structs import replace

from autosched import report
from autosched.api.connection import Daemon
from autosched.backend import Network
from autosched.daemon.access import keyring
from autosched.daemon.web import overview_page
from autosched.model import JobLoad, TaskInfo
from autosched.protocol import Done, PlanNetwork
from autosched.protocol.roles import Role
from autosched.recordstore import opening
from autosched.recordstore.store import RecordStore
from integration.served import PROFILE, Puppet, attached, run, serving, spec, user
from samples import evaluation, job_view, records, spans
from samples_of_store import CONV, LAB, measured

pytestmark = pytest.mark.skipif(
    browser.installed() is None, reason="Chromium is not installed: apt-get install chromium"
)
PAINTED = "document.documentElement?.dataset.painted === 'yes'"
NETWORK = Network(tasks=(TaskInfo(task=1, name="conv", workload="w", weight=2, flops=1e6),))


def looked_at(folder: Path, work: Callable[[browser.Page, str, Daemon], Awaitable[None]]) -> None:
    async def live() -> None:
        async with serving(folder), browser.browsing() as page:
            daemon = await user(folder)
            try:
                await work(page, await daemon.page_link(), daemon)
            finally:
                daemon.close()
            assert page.complaints == []

    run(live)


async def a_measured_job(daemon: Daemon, folder: Path) -> tuple[int, Puppet]:
    job, puppet = await attached(daemon, folder)
    await puppet.ask(PlanNetwork(network=NETWORK, trials=64), Done)
    await puppet.end(await puppet.steps.get(), load=PROFILE)
    step = await puppet.steps.get()
    for trial in range(3, 0, -1):
        puppet.measure(3 - trial, "cpu0")
    await puppet.end(step, load=JobLoad())
    return job, puppet


def test_the_page_explains_the_first_steps_and_then_shows_the_jobs(tmp_path: Path) -> None:
    async def work(page: browser.Page, link: str, daemon: Daemon) -> None:
        assert link.startswith((await daemon.info()).page)
        await page.open(link)
        await page.until(PAINTED)
        assert "autosched tune model.onnx" in await page.ask("document.getElementById('empty').innerText")
        await page.until("document.getElementById('live').innerText === 'live'")
        job, _ = await a_measured_job(daemon, tmp_path)
        await page.until("document.getElementById('empty').hidden")
        await page.until("document.querySelector('#jobs tbody').innerText.includes('3/64')")
        row = await page.ask("document.querySelector('#jobs tbody tr').innerText")
        assert "net" in row
        assert "2.00 ms" in row
        await page.until("document.querySelector('#curve canvas') !== null")
        await daemon.cancel(job)
        await page.until("document.getElementById('jobs').innerText.includes('No job is active')")
        assert "job 1 cancelled" in await page.ask("document.getElementById('told').innerText")

    looked_at(tmp_path, work)


def test_the_page_needs_no_mouse_and_fits_a_phone(tmp_path: Path) -> None:
    async def work(page: browser.Page, link: str, daemon: Daemon) -> None:
        job, _ = await a_measured_job(daemon, tmp_path)
        await page.open(link, width=390, height=844, dark=True)
        await page.until(PAINTED)
        assert await page.ask("document.documentElement.scrollWidth <= innerWidth")
        ground = "getComputedStyle(document.body).backgroundColor"
        assert await page.ask(ground) == "rgb(15, 20, 25)"
        await page.ask("document.getElementById('theme').click()")
        assert await page.ask(ground) == "rgb(246, 247, 249)"
        await page.ask("document.getElementById('gantt').focus()")
        await page.until(
            f"(({_press('ArrowDown')}), document.getElementById('gantt-said').innerText.includes('profile of job'))"
        )
        await page.ask(_press("Enter"))
        await page.until(f"location.pathname === '/jobs/{job}' && {PAINTED}")
        assert "conv" in await page.ask("document.getElementById('tasks').innerText")
        assert await page.ask("document.documentElement.scrollWidth <= innerWidth")
        await page.until("document.querySelector('#curve canvas') !== null")

    looked_at(tmp_path, work)


@pytest.mark.parametrize("width", [1200, 390])
def test_no_table_of_a_report_is_cut_off(tmp_path: Path, width: int) -> None:
    """Names of fused operators have no spaces; the figures to their right must stay visible."""
    view = job_view()
    fused = "fused_" + "_".join(f"conv2d{number}_add{number}_relu{number}" for number in range(12))
    tasks = tuple(replace(task, name=fused, shape="conv2d 64x55x55 -> 64, 3x3, " * 3) for task in view.tasks)
    slow = tuple(replace(task, best_s=123.4e-3, first_s=1.234, trials=12_345, failed=1_234) for task in tasks)
    file = tmp_path / "report.html"
    file.write_text(report.page(report.gather(replace(view, tasks=slow), evaluation(), records(), spans())))
    tables = "[...document.querySelectorAll('.wide')].filter(e => e.querySelector('table'))"

    async def look() -> None:
        async with browser.browsing() as page:
            await page.open(file.as_uri(), width=width)
            assert await page.ask(f"{tables}.length") > 0
            cut_off = f"{tables}.filter(e => e.scrollWidth > e.clientWidth).map(e => e.getAttribute('aria-label'))"
            assert await page.ask(cut_off) == []

    run(look)


@pytest.mark.parametrize("width", [1300, 390])
def test_known_schedules_are_searched_and_opened(tmp_path: Path, width: int) -> None:
    other = replace(CONV, hash="beef", shape="dense 1x512 -> 1x1000")
    with contextlib.closing(RecordStore(opening.file_url(tmp_path / "records.db"))) as store:
        store.add(LAB, [measured(0, 3e-3), measured(1, 2e-3), measured(2, 1e-3, workload=other)])
    rows = "document.querySelectorAll('#workloads tbody tr').length"
    box = "document.getElementById('operator')"
    type_in = f"{box}.value = '{{}}'; {box}.dispatchEvent(new Event('input', {{{{bubbles: true}}}}))"

    async def work(page: browser.Page, link: str, daemon: Daemon) -> None:
        await page.open(link.replace("#", "records#"), width=width)
        await page.until(PAINTED)
        assert await page.ask(rows) == 2
        await page.ask(f"(() => {{ {type_in.format('3x3')} }})()")
        await page.until(f"{rows} === 1 && location.search === '?operator=3x3'")
        await page.ask("document.querySelector('#workloads a').click()")
        await page.until("document.querySelector('#history canvas') !== null")
        assert await page.ask("document.getElementById('about-title').innerText") == CONV.shape
        told = await page.ask("document.getElementById('fastest').innerText")
        assert "2.20 ms" in told
        assert "squeezenet.onnx" in told
        assert await page.ask("document.documentElement.scrollWidth <= innerWidth")
        await page.ask(f"(() => {{ {type_in.format('softmax')} }})()")
        await page.until("document.getElementById('problem').innerText === 'Nothing is known of that.'")

    looked_at(tmp_path, work)


def test_an_operator_drains_from_the_page(tmp_path: Path) -> None:
    async def work(page: browser.Page, link: str, daemon: Daemon) -> None:
        await page.open(link)
        await page.until(PAINTED)
        await page.ask("window.prompt = () => 'new fan'; document.querySelector('#units button').click()")
        await page.until("document.getElementById('units').innerText.includes('drained: new fan')")
        assert next(unit.drained for unit in await daemon.units()).startswith("new fan (")

    looked_at(tmp_path, work)


def test_older_jobs_are_loaded_by_a_button(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_page, "ENDED_SHOWN", 1)

    async def work(page: browser.Page, link: str, daemon: Daemon) -> None:
        for _ in range(3):
            await daemon.cancel((await daemon.submit(spec())).job)
        await page.open(link)
        await page.until(PAINTED)
        await page.ask("document.querySelectorAll('#jobs-which button')[1].click()")
        rows = "document.querySelectorAll('#jobs tbody tr').length"
        assert await page.ask(rows) == 1
        assert await page.ask("document.getElementById('jobs-older').innerText") == "Older jobs: 2 more"
        await page.ask("document.getElementById('jobs-older').click()")
        await page.until(f"{rows} === 3 && document.getElementById('jobs-older').hidden")

    looked_at(tmp_path, work)


def test_experiments_and_their_jobs_are_shown(tmp_path: Path) -> None:
    async def work(page: browser.Page, link: str, daemon: Daemon) -> None:
        def labels(combination: str) -> dict[str, str]:
            return {"experiment": "sweep", "experiment-jobs": "4", "combination": combination}

        await daemon.submit(spec(name="other"))
        again = (await daemon.submit(spec(labels=labels("a")))).job
        await daemon.cancel(again)
        for combination in ("a", "b"):  # the first one again
            await daemon.submit(spec(labels=labels(combination)))
        await page.open(link)
        await page.until(PAINTED)
        strip = "document.querySelector('#experiments button')"
        assert await page.ask(f"{strip}.innerText.replace(/\\s+/g, ' ')") == "sweep 0 of 4 jobs, 2 active"
        rows = "document.querySelectorAll('#jobs tbody tr').length"
        assert await page.ask(rows) == 3
        await page.ask(f"{strip}.click()")
        assert await page.ask(f"{strip}.getAttribute('aria-pressed')") == "true"
        assert await page.ask(rows) == 3, "all of the experiment, ended or not"
        assert "other" not in await page.ask("document.querySelector('#jobs tbody').innerText")
        await daemon.submit(spec(labels=labels("c")))
        await page.until(f"{strip}.innerText.includes('3 active')")
        await page.ask(f"{strip}.click()")
        await page.until("document.querySelector('#jobs tbody').innerText.includes('other')")

    looked_at(tmp_path, work)


def test_the_page_shows_the_start_of_its_idle_times(tmp_path: Path) -> None:
    async def first() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, _ = await a_measured_job(daemon, tmp_path)
            await daemon.cancel(job)
            daemon.close()

    async def work(page: browser.Page, link: str, daemon: Daemon) -> None:
        await page.open(link)
        await page.until("document.getElementById('idle-since').innerText.startsWith('The daemon started at ')")

    run(first)
    looked_at(tmp_path, work)


def test_a_reader_signs_in_with_a_key_and_sees_what_he_wanted(tmp_path: Path) -> None:
    key, _ = keyring.make(tmp_path / "keys", Role.VIEWER)

    async def work(page: browser.Page, link: str, daemon: Daemon) -> None:
        job, _ = await a_measured_job(daemon, tmp_path)
        await page.open(link.replace("#", f"jobs/{job}/report#").replace("sign-in=", "sign-in=wrong"))
        await page.until("location.pathname === '/login'")
        await page.until(PAINTED)
        assert "This link was used" in await page.ask("document.getElementById('problem').innerText")
        await page.ask(typed("viewer:unknown:" + "0" * 64))
        await page.until("document.getElementById('problem').innerText.startsWith('This key is not known here')")
        await page.ask(typed(key.line()))
        await page.until(f"location.pathname === '/jobs/{job}/report'")
        await page.until("document.getElementById('report')?.srcdoc.includes('<html')")
        await page.until(PAINTED)
        assert await page.ask("document.getElementById('report').contentDocument") is None, "no script reaches it"
        assert all("401" in words for words in page.complaints), page.complaints
        page.complaints.clear()
        await page.open(f"{link.partition('#')[0]}jobs/{job}")
        await page.until(PAINTED)
        assert "Report" in await page.ask("document.getElementById('report').innerText")

    def typed(text: str) -> str:
        return f"document.getElementById('key').value = '{text}'; document.getElementById('look').click()"

    looked_at(tmp_path, work)


def _press(key: str) -> str:
    event = f"new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}})"
    return f"document.getElementById('gantt').dispatchEvent({event})"
