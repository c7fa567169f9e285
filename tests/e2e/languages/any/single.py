from urllib.parse import urlsplit

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import dispatcher_plugin_types as types
from wit_world.imports import http, http_types, outgoing_handler, wasi_http_types


class Handler(exports.Handler):
    def handle(self, message: types.Message) -> None:
        match message.body.value.split():
            case ["done"]:
                print("handled done")
            case ["later"]:
                raise Err(types.Failure_Retry(types.Retry(after=5_000, reason="not yet")))
            case ["http", url]:
                judge(get_by_contract, url)
            case ["wasi", url]:
                judge(get_by_wasi, url)
            case _:
                raise Err(types.Failure_Reject("not wanted"))


def judge(get, url: str) -> None:
    try:
        status = get(url)
    except Err as error:
        raise Err(types.Failure_Reject(str(error.value)))
    if status != 200:
        raise Err(types.Failure_Reject(f"status {status}"))


def get_by_contract(url: str) -> int:
    request = http_types.Request("GET", url, headers=[], body=b"", timeout=None, max_body=None, truncate=False)
    return http.send(request).status


def get_by_wasi(url: str) -> int:
    parts = urlsplit(url)
    request = wasi_http_types.OutgoingRequest(wasi_http_types.Fields())
    is_https = parts.scheme == "https"
    request.set_scheme(wasi_http_types.Scheme_Https() if is_https else wasi_http_types.Scheme_Http())
    request.set_authority(parts.netloc)
    request.set_path_with_query((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    with outgoing_handler.handle(request, None) as pending:
        with pending.subscribe() as ready:
            ready.block()
        response = pending.get().value
    if isinstance(response, Err):
        raise response
    with response.value:
        return response.value.status()
