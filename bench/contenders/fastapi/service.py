"""The articles' FastAPI service, in its short form: check the request, run the script, queue the order.

The user is named by a header (the article takes it from a dependency) and a winner's order goes into a Redis
stream (the article sends it to Kafka). What the article does besides, looking up a token, a black list and a
counter in Redis for each request, is left out: it would only be slower.
"""

import os
import pathlib

import redis.asyncio as redis
from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel

SCRIPT = pathlib.Path(os.environ["SECKILL_SCRIPT"]).read_text()

app = FastAPI()
store = redis.Redis(host="127.0.0.1", port=int(os.environ["SECKILL_REDIS_PORT"]), max_connections=256)
deduct = store.register_script(SCRIPT)


class SeckillRequest(BaseModel):
    activity_id: int


async def get_user_id(user_id: int = Header()) -> int:
    if user_id <= 0:
        raise HTTPException(400, "no such user")
    return user_id


async def pre_deduct_stock(user_id: int, activity_id: int) -> bool:
    keys = [f"seckill:stock:{activity_id}", f"seckill:bought:{activity_id}:{user_id}"]
    result = await deduct(keys=keys)
    if result == -1:
        raise HTTPException(400, "bought already")
    return result == 1


@app.post("/api/seckill")
async def seckill(request: SeckillRequest, user_id: int = Depends(get_user_id)):
    if request.activity_id <= 0:
        raise HTTPException(400, "no such activity")
    if not await pre_deduct_stock(user_id, request.activity_id):
        return {"code": 400, "message": "sold out"}
    await store.xadd("seckill:orders", {"user": user_id, "activity": request.activity_id}, maxlen=100_000)
    return {"code": 200, "message": "queued"}
