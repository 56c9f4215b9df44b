"""Frames of Rushgate's protocol in bulk: what the drivers of this folder send and read. See protocol.md.

Frames of one kind are made together, their checksums column by column, so that a million take a second.
"""

import socket
import struct

import numpy as np

HELLO, AUTH, BUY, RESULT_PUSH = 0x01, 0x02, 0x20, 0x22
OK, QUEUED, SOLD_OUT = 0x0000, 0x0001, 0x1001
# The top four bits of a status that asks to come again here.
RETRY_CLASS = 0x2
USER_TLV = 0x0001
HEADER_BYTES = 24
# Header, the TLV that names the user, and activity, SKU, quantity.
SERVICE_BUY_BYTES = 44
SHARDS = 16

_HEADER = struct.Struct(">IBBHIHHII")


def _crc_table() -> np.ndarray:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return np.array(table, dtype=np.uint32)


_TABLE = _crc_table()


def crc32c(rows: np.ndarray) -> np.ndarray:
    """The checksum of every row of bytes."""
    crc = np.full(len(rows), 0xFFFFFFFF, dtype=np.uint32)
    for column in rows.T:
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)


def frame(opcode: int, request_id: int, body: bytes) -> bytes:
    """One request without TLVs."""
    head = _HEADER.pack(20 + len(body), 1, opcode, 0, request_id, 0, 0, 0, 0)
    checked = np.frombuffer(head[:20] + body, dtype=np.uint8).reshape(1, -1)
    return head[:20] + struct.pack(">I", int(crc32c(checked)[0])) + body


def service_buys(users: np.ndarray, activities: np.ndarray, skus: np.ndarray, request_ids: np.ndarray) -> bytes:
    """One BUY of one unit for each row, as a back end sends it: `SERVICE_BUY_BYTES` each, one after the other."""
    layout = np.dtype([
        ("length", ">u4"), ("version", "u1"), ("opcode", "u1"), ("flags", ">u2"), ("request_id", ">u4"),
        ("status", ">u2"), ("ext_len", ">u2"), ("hint", ">u4"), ("crc", ">u4"), ("tlv", ">u2"), ("tlv_len", ">u2"),
        ("user", ">u8"), ("activity", ">u4"), ("sku", ">u2"), ("quantity", ">u2"),
    ])
    assert layout.itemsize == SERVICE_BUY_BYTES
    frames = np.zeros(len(users), dtype=layout)
    frames["length"], frames["version"], frames["opcode"] = SERVICE_BUY_BYTES - 4, 1, BUY
    frames["ext_len"], frames["tlv"], frames["tlv_len"] = 12, USER_TLV, 8
    frames["quantity"] = 1
    frames["request_id"], frames["user"] = request_ids, users
    frames["activity"], frames["sku"] = activities, skus
    rows = frames.view(np.uint8).reshape(len(users), SERVICE_BUY_BYTES)
    frames["crc"] = crc32c(np.delete(rows, slice(20, 24), axis=1))
    return frames.tobytes()


def shard_of(users: np.ndarray) -> np.ndarray:
    """The sub-key of each user: the top four bits of splitmix64 of the id."""
    z = users.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(60)


def users_of(count: int, shards: int) -> np.ndarray:
    """The first `count` user ids that hash to the first `shards` sub-keys."""
    ids = np.arange(1, count * SHARDS * 2 // shards + 10_000, dtype=np.uint64)
    return ids[shard_of(ids) < shards][:count]


def replies(buffer: bytearray):
    """Takes whole frames off the front: (opcode, request id, status) of each."""
    at = 0
    while len(buffer) - at >= HEADER_BYTES:
        length, _, opcode, _, request_id, status, _, _, _ = _HEADER.unpack_from(buffer, at)
        if len(buffer) - at < length + 4:
            break
        yield opcode, request_id, status
        at += length + 4
    del buffer[:at]


def open_service(addr: str, token: str) -> socket.socket:
    """A connection on which AUTH as a back end has succeeded."""
    host, port = addr.rsplit(":", 1)
    stream = socket.create_connection((host, int(port)), timeout=30)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    hello = struct.pack(">BBHHHB", 5, 0, 1, 0, 0, 0)
    stream.sendall(frame(HELLO, 1, hello) + frame(AUTH, 2, struct.pack(">H", len(token)) + token.encode()))
    buffer, answered = bytearray(), 0
    while answered < 2:
        data = stream.recv(4096)
        if not data:
            raise RuntimeError("the gateway closed the connection before AUTH was answered")
        buffer += data
        for _, _, status in replies(buffer):
            if status != OK:
                raise RuntimeError(f"HELLO or AUTH was answered with {status:#06x}")
            answered += 1
    return stream
