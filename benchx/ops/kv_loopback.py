"""Blocks over a TCP connection to this machine itself: the network stack without a network."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

from benchx.core.call import PreparedCall
from benchx.ops.kv_copy_backends import places

if TYPE_CHECKING:
    from torch import Tensor

    from benchx.core.call import Tensors
    from benchx.ops.kv_copy import CopyInputs

_TIMEOUT_S = 60.0


def prepare_loopback(inputs: CopyInputs) -> PreparedCall:
    """A connection and buffers; a call sends every block from one thread and receives in another.

    Both ends are Python threads: it is the kernel's copies and system calls that are timed.
    """
    return PreparedCall(run=_Loopback(inputs).run, graph_safe=False)


class _Loopback:
    """Both ends of a connection; closed with the call."""

    def __init__(self, inputs: CopyInputs) -> None:
        import torch

        self._source, self._moved = inputs.source.cpu(), torch.empty(inputs.source.shape)
        self._places = places(inputs)
        self._sends = _cut(self._source)
        self._receives = _cut(self._moved)
        self._out, self._back = _connection()

    def run(self) -> Tensors:
        """Every block once."""
        sender = threading.Thread(target=self._send, daemon=True)
        sender.start()
        for _, there in self._places:
            _receive(self._back, self._receives[there])
        sender.join()
        return {"moved": self._moved}

    def _send(self) -> None:
        for here, _ in self._places:
            self._out.sendall(self._sends[here])

    def __del__(self) -> None:
        for end in ("_out", "_back"):
            if hasattr(self, end):
                getattr(self, end).close()


def _cut(blocks: Tensor) -> list[memoryview]:
    """The bytes of each block, in place."""
    array: Any = blocks.numpy()
    whole, size = memoryview(array).cast("B"), blocks.shape[1] * blocks.element_size()
    return [whole[index * size : (index + 1) * size] for index in range(blocks.shape[0])]


def _connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        out = socket.create_connection(server.getsockname(), timeout=_TIMEOUT_S)
        back, _ = server.accept()
    back.settimeout(_TIMEOUT_S)
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return out, back


def _receive(connection: socket.socket, place: memoryview) -> None:
    while place:
        count = connection.recv_into(place)
        if not count:
            raise ConnectionError("the sending end closed the connection")
        place = place[count:]
