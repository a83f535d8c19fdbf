"""Routes of the HTTP interface. All but health checks and the login need authentication."""

import asyncio
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from msgspec import Struct

from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.operations.user_session import UserSession
from autosched.daemon.web import health, metrics
from autosched.daemon.web.connections import REQUEST_S, Connections
from autosched.daemon.web.feed import Feed
from autosched.daemon.web.job_page import JobPages
from autosched.daemon.web.overview_page import OverviewPage
from autosched.daemon.web.records_page import RecordsPage
from autosched.daemon.web.web_authentication import WebAuthenticator
from autosched.daemon.web.web_services import WebServices
from autosched.errors import AutoschedError, Busy, NotFound, Refused
from autosched.protocol import CancelJob, DrainUnit, Method, ReturnUnit

STATIC = Path(__file__).with_name("static")
WHO: web.RequestKey[Principal] = web.RequestKey("who", Principal)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OPEN = {"/healthz", "/readyz", "/login", "/static", "/", "/records", "/jobs/{job}", "/jobs/{job}/report"}
"""Routes that need neither a session nor a key: health, and the page without contents, the same for all."""
REPORTS = {"/api/jobs/{job}/report", "/api/jobs/{job}/curves", "/api/records", "/api/records/{workload}"}
"""Routes whose answers read all records of a job, or search the record store."""
REPORT_POLICY = POLICY.replace("style-src", "style-src 'unsafe-inline'").replace("img-src", "img-src data:")
"""Policy of the frame around a report, which inherits it: a report brings its own style, and no script."""
BODY_BYTES_MAX = 64 * 1024
OLDER_MAX = 200
NUMBER_DIGITS_MAX = 15
FEED = "/api/feed"
ANSWER_S = 30.0
"""Seconds within which a request must be received and answered."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")
COMMANDS: dict[str, type[Method]] = {"cancel": CancelJob, "drain": DrainUnit, "undrain": ReturnUnit}
"""Operations of the page. Roles and audit trail are the same as over the wire."""


class Login(Struct, frozen=True):
    """The proof that a visitor exchanges for a session: the token of a link, or a key (`role:id:secret`)."""

    link: str = ""
    key: str = ""


class Site:
    """The running server."""

    def __init__(self, shown: WebServices, *, tls: bool) -> None:
        self._shown = shown
        services = shown.services
        self._visitors = WebAuthenticator(services.config, shown.authenticator, services.page_links, tls=tls)
        self._metrics = metrics.Metrics(services.runtime, shown.usage, shown.tally, services.monitor)
        self._board = OverviewPage(shown)
        self.feed = Feed(self._board)
        self._jobs = JobPages(shown)
        self._known = RecordsPage(shown.reader, shown.origin)
        self._runner = web.AppRunner(
            self._application(), access_log=None, shutdown_timeout=0.5, keepalive_timeout=REQUEST_S
        )
        self.connections: Connections | None = None

    def _application(self) -> web.Application:
        """The application with all routes."""
        app = web.Application(middlewares=[self._middle], client_max_size=BODY_BYTES_MAX)
        get = app.router.add_get
        get("/healthz", self._healthz)
        get("/readyz", self._readyz)
        get("/metrics", self._get_metrics)
        get("/login", _page("login.html"))
        app.router.add_post("/login", self._login)
        get("/", _page("index.html"))
        get(r"/jobs/{job:\d+}", _page("job.html"))
        get(r"/jobs/{job:\d+}/report", _page("report.html", REPORT_POLICY))
        get("/records", _page("records.html"))
        get("/api/records", self._known.search)
        get(r"/api/records/{workload:[^/]{1,200}}", self._known.workload)
        get("/api/everything", self._everything)
        get("/api/past", self._past)
        get("/api/jobs", self._older)
        get(r"/api/jobs/{job:\d+}", self._jobs.job)
        get(r"/api/jobs/{job:\d+}/curves", self._jobs.curves)
        get(r"/api/jobs/{job:\d+}/report", self._jobs.report)
        get(FEED, self._feed, allow_head=False)
        app.router.add_post("/api/do/{command}", self._do)
        app.router.add_static("/static/", STATIC)
        return app

    async def serve(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections until `close`."""
        await self._runner.setup()
        assert self._runner.server is not None
        self.connections = Connections(self._shown.authenticator.failures, self._runner.server)
        self.connections.open(listener, tls)

    async def close(self) -> None:
        """Disconnect everybody."""
        if self.connections is not None:
            self.connections.shut()
        self.feed.close()
        await self._runner.cleanup()

    # Before every answer ----------------------------------------------------------------------------------------------

    @web.middleware
    async def _middle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._visitors.check_name(request)
            if request.method == "POST":
                _check_origin(request)
            route = request.match_info.route.resource
            if route is None or route.canonical not in OPEN:
                request[WHO] = await self._visitors.who(request)
                self._know(request, request[WHO])
            async with asyncio.timeout(None if request.path == FEED else ANSWER_S), self._turn(request):
                response = await handler(request)
        except TimeoutError:
            refusal = web.HTTPServiceUnavailable(text=f"no answer within {ANSWER_S:g} s\n", headers=HEADERS)
            refusal.force_close()
            raise refusal from None
        except web.HTTPException as refusal:
            refusal.headers.update(HEADERS)
            raise
        except AutoschedError as error:
            response = web.json_response({"error": str(error), "code": error.code}, status=_status(error))
            if isinstance(error, Busy):
                response.headers["Retry-After"] = str(math.ceil(error.retry_after_s or 1.0))
                response.force_close()
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            static = request.path.startswith("/static/")
            response.headers.setdefault("Cache-Control", "no-cache" if static else "no-store")
        return response

    def _turn(self, request: web.Request) -> AbstractAsyncContextManager[None]:
        """The turn that an answer needs."""
        who, route = request.get(WHO), request.match_info.route.resource
        if who is None or route is None or request.path == FEED or request.method == "POST":
            return nullcontext()
        shares = self._shown.services.shares
        return shares.report(who) if route.canonical in REPORTS else shares.answer(who)

    def _know(self, request: web.Request, who: Principal) -> None:
        if self.connections is not None:
            self.connections.know(request.protocol, who)

    # Health and metrics -----------------------------------------------------------------------------------------------

    async def _healthz(self, request: web.Request) -> web.Response:
        return _verdict(await health.trouble(self._shown.services.runtime))

    async def _readyz(self, request: web.Request) -> web.Response:
        stopping = "the daemon stops" if self._shown.stopping() else ""
        return _verdict(stopping or await health.trouble(self._shown.services.runtime))

    async def _get_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": metrics.CONTENT_TYPE})

    # The page ---------------------------------------------------------------------------------------------------------

    async def _login(self, request: web.Request) -> web.StreamResponse:
        login = _decoded(await request.read(), Login)
        if login.link:
            who = await self._visitors.with_link(login.link, request.remote or "")
        else:
            who = await self._visitors.with_key(request, login.key)
        self._know(request, who)
        return _json(msgspec.json.encode({"session": self._visitors.session(who)}))

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        return await self.feed.attend(request, lambda: self._visitors.admits(request[WHO]))

    async def _everything(self, request: web.Request) -> web.Response:
        return _json(await self._board.everything(request[WHO].role.value))

    async def _past(self, request: web.Request) -> web.Response:
        return _json(await self._board.past())

    async def _older(self, request: web.Request) -> web.Response:
        before = request.query.get("before", "")
        if not before.isdecimal() or len(before) > NUMBER_DIGITS_MAX:
            raise web.HTTPBadRequest(text="before=NUMBER says where to begin\n")
        return _json(await self._board.older(int(before), OLDER_MAX))

    async def _do(self, request: web.Request) -> web.Response:
        kind = COMMANDS.get(request.match_info["command"])
        if kind is None:
            raise web.HTTPNotFound(text=f"there are: {', '.join(COMMANDS)}\n")
        method = _decoded(await request.read(), kind)
        await UserSession(self._shown.services, request[WHO]).handle(method)
        return _json(b"{}")


def _status(error: AutoschedError) -> int:
    """The HTTP status of an error."""
    kinds = {NotFound: 404, Busy: 503, Refused: 403}
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), 400)


def _check_origin(request: web.Request) -> None:
    """Accept operations from our own page only: browsers send the origin of a request, other programs send none."""
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site not in ("same-origin", "none") or (origin is not None and urlsplit(origin).netloc != request.host):
        raise web.HTTPForbidden(text="another site may not do this in your name\n")
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="send JSON\n")


def _decoded(body: bytes, kind: type[T]) -> T:
    """The contents of a request. Raises HTTPBadRequest."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None


def _page(name: str, policy: str = POLICY) -> Handler:
    text = (STATIC / name).read_text(encoding="utf-8")

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": policy})

    return answer


def _json(body: bytes) -> web.Response:
    response = web.Response(body=body, content_type="application/json")
    if len(body) > BODY_BYTES_MAX:
        response.enable_compression()
    return response


def _verdict(trouble: str) -> web.Response:
    return web.Response(text=f"{trouble or 'ok'}\n", status=503 if trouble else 200)


async def serve(sock: socket.socket, tls: ssl.SSLContext | None, shown: WebServices) -> Site:
    """Start to serve on a listening socket."""
    site = Site(shown, tls=tls is not None)
    await site.serve(sock, tls)
    return site
