"""A load generator for what `rushgate-loadgen flood` does not do: users picked by their sub-key, many activities.

Runs as a process of its own (`main`), on the generator's core; arguments and result are one JSON object each. The
frames are made before; what is measured is sending them and reading the answers. `refuse` sends a batch per
connection and the next when that is answered whole; `sell` keeps a number of BUYs in flight and buys once for each
user. A status that is not expected ends it.
"""

import collections
import json
import select
import sys
import time

import numpy as np

from . import wire

READ_BYTES = 256 * 1024
SILENCE_S = 30


def open_connections(asked: dict) -> tuple[dict, select.epoll]:
    """Service connections by descriptor, and who wakes them."""
    streams = [wire.open_service(asked["addr"], asked["token"]) for _ in range(asked["connections"])]
    epoll = select.epoll()
    for stream in streams:
        epoll.register(stream.fileno(), select.EPOLLIN)
    return {stream.fileno(): stream for stream in streams}, epoll


def wake(epoll: select.epoll) -> list:
    """Descriptors with something to read."""
    events = epoll.poll(SILENCE_S)
    if not events:
        raise RuntimeError(f"nothing was answered for {SILENCE_S} s")
    return [descriptor for descriptor, _ in events]


def elapsed(began_at: float, cpu_before_s: float) -> dict:
    """How long it took, and how busy this process was: near 1, it is what limits."""
    seconds = time.monotonic() - began_at
    return {"seconds": seconds, "generator_cores_used": round((time.process_time() - cpu_before_s) / seconds, 3)}


def refuse(asked: dict) -> dict:
    """BUYs of sold-out articles, over all (activity, SKU) pairs in a random order, for a time."""
    depth, pairs, seconds = asked["depth"], asked["activities"] * asked["skus"], asked["seconds"]
    rows = asked["frames"] // depth * depth
    rows_random = np.random.default_rng(1).permutation(rows)
    pair = rows_random % pairs
    frames = wire.service_buys(
        users=asked["first_user"] + np.arange(rows, dtype=np.uint64),
        activities=1 + pair // asked["skus"],
        skus=1 + pair % asked["skus"],
        request_ids=1 + np.arange(rows) % depth,
    )
    batch_bytes, answer_bytes = depth * wire.SERVICE_BUY_BYTES, depth * wire.HEADER_BYTES
    batches = [frames[at:at + batch_bytes] for at in range(0, len(frames), batch_bytes)]
    high, low = (bytes([wire.SOLD_OUT >> shift & 0xFF]) * depth for shift in (8, 0))
    streams, epoll = open_connections(asked)
    buffers = {descriptor: b"" for descriptor in streams}
    next_batch, answered, until = 0, 0, time.monotonic() + seconds
    for stream in streams.values():
        stream.sendall(batches[next_batch % len(batches)])
        next_batch += 1
    began_at, cpu_before_s = time.monotonic(), time.process_time()
    while time.monotonic() < until:
        for descriptor in wake(epoll):
            stream = streams[descriptor]
            data = buffers[descriptor] + stream.recv(READ_BYTES)
            if len(data) < answer_bytes:
                buffers[descriptor] = data
                continue
            if len(data) != answer_bytes or data[12::24] != high or data[13::24] != low:
                raise RuntimeError("an answer was not SOLD_OUT")
            buffers[descriptor] = b""
            answered += depth
            stream.sendall(batches[next_batch % len(batches)])
            next_batch += 1
    return {"answered": answered} | elapsed(began_at, cpu_before_s)


def sell(asked: dict) -> dict:
    """One BUY for each user, again as long as he is told to come back, until all are QUEUED.

    (activity, SKU) pairs are taken in turn.
    """
    count, pairs = asked["buyers"], asked["activities"] * asked["skus"]
    users = wire.users_of(count, asked["shards"])
    pair = np.arange(count) % pairs
    frames = memoryview(wire.service_buys(users, 1 + pair // asked["skus"], 1 + pair % asked["skus"], 1 + np.arange(count)))
    streams, epoll = open_connections(asked)
    buffers = {descriptor: bytearray() for descriptor in streams}
    sent = queued = told_to_retry = 0
    again: collections.deque[int] = collections.deque()

    def send(descriptor: int, places: int) -> None:
        """Fills free places: first those who did not ask yet, then those who come again."""
        nonlocal sent
        fresh = min(places, count - sent)
        out = bytes(frames[sent * wire.SERVICE_BUY_BYTES:(sent + fresh) * wire.SERVICE_BUY_BYTES])
        sent += fresh
        for _ in range(min(places - fresh, len(again))):
            at = again.popleft() * wire.SERVICE_BUY_BYTES
            out += frames[at:at + wire.SERVICE_BUY_BYTES]
        if out:
            streams[descriptor].sendall(out)

    began_at, cpu_before_s = time.monotonic(), time.process_time()
    for descriptor in streams:
        send(descriptor, asked["in_flight"])
    while queued < count:
        for descriptor in wake(epoll):
            buffer, answered = buffers[descriptor], 0
            data = streams[descriptor].recv(READ_BYTES)
            if not data:
                raise RuntimeError("the gateway closed a connection")
            buffer += data
            for opcode, request_id, status in wire.replies(buffer):
                if opcode == wire.RESULT_PUSH:
                    continue
                answered += 1
                if opcode == wire.BUY and status == wire.QUEUED:
                    queued += 1
                elif opcode == wire.BUY and status >> 12 == wire.RETRY_CLASS:
                    told_to_retry += 1
                    again.append(request_id - 1)
                else:
                    raise RuntimeError(f"a buyer was told {status:#06x} (opcode {opcode:#04x}) instead of QUEUED")
            send(descriptor, answered)
    return {"queued": queued, "told_to_retry": told_to_retry} | elapsed(began_at, cpu_before_s)


def main() -> None:
    """Does what its one argument says."""
    asked = json.loads(sys.argv[1])
    print(json.dumps({"refuse": refuse, "sell": sell}[asked["work"]](asked)))
