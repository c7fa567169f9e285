"""A worker in FastAPI for `dispatcher run --forward http://127.0.0.1:8080/jobs`."""

import hashlib
import hmac
import os
import time

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response

app = FastAPI()
key = os.environ.get("SIGNING_KEY", "").encode()


async def check_signature(request: Request) -> None:
    """Without a key every caller is trusted."""
    if not key:
        return
    header = request.headers.get("x-dispatcher-signature", "")
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    signed = parts.get("t", "").encode() + b"." + await request.body()
    wanted = hmac.new(key, signed, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(parts.get("v1", ""), wanted):
        raise HTTPException(401, "wrong signature")
    if abs(time.time() - int(parts["t"])) > 300:
        raise HTTPException(401, "old signature")


@app.post("/jobs", status_code=204)
async def job(request: Request) -> Response:
    await check_signature(request)
    try:
        body = await request.json()
    except ValueError:
        raise HTTPException(400, "no JSON") from None
    order = body.get("order") if isinstance(body, dict) else None
    if not isinstance(order, int):
        # Dead-lettered, with this text as the reason.
        raise HTTPException(422, 'wanted {"order": NUMBER}')
    attempt = request.headers.get("x-aws-sqsd-receive-count")
    print(f"order {order}, attempt {attempt}", flush=True)
    return Response(status_code=204)


if __name__ == "__main__":
    # Dispatcher closes idle connections after 60 seconds; whoever closes first must not be the
    # service. An exception in a handler is a 500: the message is retried.
    port = int(os.environ.get("PORT", "8080"))
    uvicorn.run(app, host="127.0.0.1", port=port, timeout_keep_alive=75)
