"""Starts a fake engine as benchx would, says so, and waits to be killed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchx.serving.engines.process import EngineProcess, Launch

mode, pids, log, engine = sys.argv[1:5]
command = (sys.executable, engine, mode, "0", pids)
process = EngineProcess(Launch(command=command), Path(log))
while not Path(pids).exists():
    time.sleep(0.02)
if "fork" in sys.argv[5:]:  # a child that was not made by exec keeps the pipe to the warden open
    child = os.fork()
    if child == 0:
        time.sleep(10)
        os._exit(0)
print(process.pid, flush=True)
time.sleep(300)
