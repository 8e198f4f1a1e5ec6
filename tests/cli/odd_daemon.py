"""Listens at the socket it is given as a daemon of another version does, or as one that never answers.

odd_daemon.py SOCKET silent|older|newer
"""

import sys

import zmq

from gpusched.control.codec import encode
from gpusched.control.messages import Refused

path, kind = sys.argv[1:]
socket = zmq.Context().socket(zmq.ROUTER)
socket.bind(f"ipc://{path}")
print("listening", flush=True)
while True:
    peer, protocol, number, *_ = socket.recv_multipart()
    if kind == "older":  # it knows what Refused is, and that the first frame is the protocol
        told = encode(Refused(code="protocol", message="of another time", version="0.0.1", protocol=0))
        socket.send_multipart([peer, b"\x00", number, told])
    elif kind == "newer":
        socket.send_multipart([peer, b"\x09", number, b"\x93what is this"])
