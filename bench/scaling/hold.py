"""Holds connections that do nothing to a server that returns what it reads: what a bare task costs. A process of its own (`main`)."""

import json
import socket
import sys
import time

from . import wire


def main() -> None:
    """Opens, has one frame echoed on each, holds, and counts those that still answer."""
    asked = json.loads(sys.argv[1])
    host, port = asked["addr"].rsplit(":", 1)
    hello = wire.frame(wire.HELLO, 1, bytes(9))

    def answers(stream: socket.socket) -> bool:
        stream.sendall(hello)
        data = b""
        while len(data) < len(hello):
            more = stream.recv(len(hello) - len(data))
            if not more:
                return False
            data += more
        return data == hello

    streams = [socket.create_connection((host, int(port)), timeout=10) for _ in range(asked["connections"])]
    opened = sum(map(answers, streams))
    time.sleep(asked["seconds"])
    print(json.dumps({"opened": opened, "alive": sum(map(answers, streams))}))
