"""Workbench on a real JupyterHub: a person's way through it, who is refused, what a stop leaves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

import pytest
import requests

from tests.hub.support import Hub, start_hub, stop_hub
from tests.lab import PACED, heard, press, run_cell, see_it_train, window, write_notebook
from tests.processes import command_of
from tests.server.test_access import ENDPOINTS
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Request, Response

OWNER = "jo@x.org"
"""In addresses as it is."""
OTHER = "ada lab+1"
"""As addresses have it: ``ada%20lab%2B1``."""

EXPERIMENT = f"""{PACED}
data = torch.utils.data.TensorDataset(torch.randn(512, 16), torch.randint(0, 3, (512,)))
train = torch.utils.data.DataLoader(data, batch_size=32, num_workers=1)
exp = wb.Experiment(model, train, epochs=10_000, name="on-a-hub")
run = exp.run()
exp
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    running = start_hub(tmp_path_factory.mktemp("hub"))
    yield running
    stop_hub(running)


@pytest.fixture
def context() -> Iterator[BrowserContext]:
    with window("hub") as found:
        yield found


class Traffic:
    """What the pages of a browser ask for, and what came of it."""

    def __init__(self, context: BrowserContext) -> None:
        self.asked: list[str] = []
        self.found: list[str] = []
        self.failed: list[tuple[str, int | str]] = []
        context.on("page", self._watch)
        context.on("request", lambda one: self.asked.append(one.url))
        context.on("response", self._answered)
        context.on("requestfailed", self._failed)
        context.on("console", lambda said: self._said(said.text))

    def found_of(self, part: str) -> list[str]:
        """The addresses with this in them that were answered."""
        return [one for one in self.found if part in one]

    def _watch(self, page: Page) -> None:
        page.on("websocket", lambda one: self.asked.append(one.url.replace("ws:", "http:", 1)))

    def _answered(self, answer: Response) -> None:
        if answer.status >= 400:
            self.failed.append((answer.url, answer.status))
        else:
            self.found.append(answer.url)

    def _failed(self, request: Request) -> None:
        if (why := request.failure or "") != "net::ERR_ABORTED":  # the page was left meanwhile
            self.failed.append((request.url, why))

    def _said(self, text: str) -> None:
        if re.search(r"Content.Security.Policy|X-Frame-Options|refused to connect", text):
            self.failed.append((text, "said by the browser"))


def test_a_day_on_the_hub(hub: Hub, context: BrowserContext) -> None:
    """Log in, train, look at it everywhere, and let the hub stop the server."""
    traffic, page = Traffic(context), context.new_page()
    write_notebook(hub.home(OWNER) / "work/first.ipynb", EXPERIMENT)

    # a link that is given to many leads each to their own server, past the login and the start
    page.goto(f"{hub.url}hub/user-redirect/lab/tree/work/first.ipynb")
    page.get_by_label("Username").fill(OWNER)
    page.get_by_label("Password").fill("any")
    press(page, "Sign in")
    page.wait_for_url(f"{hub.url}user/{OWNER}/lab/tree/work/first.ipynb")
    run_cell(page, 0)
    notebook = page.locator(".jp-Notebook")
    panel = notebook.get_by_role("region", name=re.compile("^Experiment on-a-hub"))
    see_it_train(panel)
    # what is drawn after the first step moves what stands below it
    panel.get_by_role("figure", name=re.compile("^Memory of step")).wait_for()

    press(panel, "Graph")
    page.get_by_role("tab", name=re.compile(r"on-a-hub · step [\d,]+ · graph")).wait_for()
    graph = page.locator(".jp-Workbench-document:visible")
    graph.get_by_role("treeitem").first.wait_for()

    page.get_by_role("tab", name="first.ipynb").click()
    page.locator("[data-id=workbench-side-panel]").click()
    side = page.locator("#workbench-side-panel")
    side.get_by_role("option").filter(has_text="on-a-hub").wait_for()

    press(panel, "TensorBoard")
    tensorboard = page.frame_locator(".jp-Workbench-tensorboard iframe")
    axis = tensorboard.locator("scalar-card line-chart .axis.x-axis")
    axis.filter(has_text=re.compile(r"\d")).first.wait_for()
    dashboard = f"{hub.url}user/{OWNER}/workbench/tb/"
    wait_until(lambda: heard(page) and traffic.found_of("/font-roboto/"), "a font of TensorBoard's")
    assert all(one.startswith(dashboard) for one in traffic.found_of("/font-roboto/"))

    page.get_by_role("tab", name="first.ipynb").click()
    panel.get_by_role("radio", name="ddp:2").click()
    wait_until(lambda: at_work(hub) == AT_WORK, "ranks and their loader workers")
    see_it_train(panel)

    within = (hub.url, "blob:", "data:")
    assert [one for one in traffic.asked if not one.startswith(within)] == []
    assert traffic.failed == []

    control_panel = context.new_page()
    control_panel.goto(f"{hub.url}hub/home")
    control_panel.wait_for_function("window._jupyterhub_page_loaded")  # its buttons work from now
    with control_panel.expect_response(is_stop) as stopped:
        control_panel.get_by_role("button", name="Stop My Server").click()
    assert stopped.value.ok, stopped.value.text()
    control_panel.get_by_role("button", name="Start My Server").wait_for()
    wait_until(lambda: not hub.processes_of(OWNER), "the end of all that the server started")


def is_stop(answer: Response) -> bool:
    return answer.request.method == "DELETE" and urlsplit(answer.url).path.endswith("/server")


AT_WORK = {
    "jupyterhub.singleuser": 1,
    "ipykernel_launcher": 1,
    "workbench.server.tensorboard_process": 1,
    "workbench.server.listing_program": 1,  # while the side panel lists runs
    "workbench.parallel.launch.launcher_program": 1,
    "workbench.parallel.rank.program": 4,  # two ranks, and the loader worker of each
}
"""What a server has started, itself included, while an experiment trains on two ranks."""


def at_work(hub: Hub) -> dict[str, int]:
    """How many processes of each program the owner's server has started."""
    commands = [command_of(one) for one in hub.processes_of(OWNER)]
    modules = [one[one.index("-m") + 1] for one in commands if "-m" in one]
    return dict(Counter(modules))


@pytest.fixture(scope="module")
def people(hub: Hub) -> dict[str, requests.Session]:
    """Those who may ask: two, each logged in to a server of their own, and others."""
    return {
        "the owner": logged_in(hub, OWNER),
        "the other": logged_in(hub, OTHER),
        "the other's token": bearer(hub.token_of(OTHER)),
        "nobody": requests.Session(),
    }


def bearer(token: str) -> requests.Session:
    session = requests.Session()
    session.headers["Authorization"] = f"token {token}"
    return session


def logged_in(hub: Hub, name: str) -> requests.Session:
    """As a browser in which a person has logged in, and opened the server that is theirs."""
    session, login = requests.Session(), f"{hub.url}hub/login"
    session.get(login, timeout=300)
    form = {"username": name, "password": "any", "_xsrf": session.cookies["_xsrf"]}
    session.post(login, data=form, timeout=300)
    (hub.home(name) / "runs").mkdir(parents=True, exist_ok=True)
    address = hub.start_server(name)
    assert session.get(address.replace("workbench/", "lab"), timeout=300).status_code == 200
    own = urlsplit(address).path.replace("workbench/", "")
    session.headers["X-XSRFToken"] = session.cookies.get("_xsrf", path=own)
    session.headers["Sec-Fetch-Site"] = "same-origin"
    return session


@pytest.mark.parametrize(("who", "name"), [("the owner", OWNER), ("the other", OTHER)])
def test_everybody_is_at_home(
    hub: Hub, people: dict[str, requests.Session], who: str, name: str
) -> None:
    """Cookies and the XSRF token lead to TensorBoard and its fonts, whatever a name is made of."""
    address, person = hub.start_server(name), people[who]
    assert unquote(urlsplit(address).path) == f"/hubbase/user/{name}/workbench/"
    started = person.post(f"{address}api/tensorboard", json={"logdir": "runs"}, timeout=300)
    assert started.status_code == 200, started.text
    dashboard = urljoin(address, started.json()["url"])
    page = person.get(dashboard, timeout=300)
    assert "<title>TensorBoard</title>" in page.text
    (font, *_others) = re.findall(r"url\(([^)]+\.woff2)\)", page.text)
    assert person.get(urljoin(dashboard, font), timeout=300).content[:4] == b"wOF2"


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
@pytest.mark.parametrize("who", ["nobody", "the other", "the other's token"])
def test_everybody_else_is_refused(
    hub: Hub, people: dict[str, requests.Session], who: str, method: str, path: str
) -> None:
    answer = people[who].request(
        method,
        hub.start_server(OWNER) + path,
        json={"logdir": "runs"},
        headers={"Sec-Fetch-Site": "same-origin"},
        timeout=300,
    )
    # a browser is led to the hub, for a login or for a refusal, and does not come back
    assert answer.status_code == 403 or answer.url.startswith(f"{hub.url}hub/"), answer.text
    assert b"dashboards" not in answer.content
