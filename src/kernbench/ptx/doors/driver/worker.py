"""Workers: each process of a program that uses the driver library has one, which emulates its GPU.

A server waits for connections and forks a worker for each, with everything imported. A worker shares its device memory
with the program through a file that both map at the same addresses. It ends with the program, even in the middle of a
launch.
"""

import os
import select
import signal
import socket
import sys
from pathlib import Path
from threading import Thread

from kernbench.common.errors import KernbenchError
from kernbench.common.files import why
from kernbench.ptx.doors.driver.service import DriverService
from kernbench.ptx.doors.driver.wire import ConnectionEndedError, greet, receive_request, send_answer, send_mapping
from kernbench.ptx.doors.memory import share_process_memory
from kernbench.ptx.doors.options import read_options
from kernbench.ptx.doors.session import Session
from kernbench.ptx.doors.terms.running import TEST

_HANGUP = getattr(select, "POLLRDHUP", 0x2000) | select.POLLHUP | select.POLLERR


def serve(listener: socket.socket, options: str, folder: Path) -> None:
    """Fork a worker for each program that connects, until this process is killed."""
    # Ctrl-C is meant for the program; workers end with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            code = 1
            try:
                work(connection, options, folder)
                code = 0
            except ConnectionEndedError:
                code = 0
            except (KernbenchError, OSError) as problem:
                reason = why(problem) if isinstance(problem, OSError) else problem
                sys.stderr.write(f"kernbench: no GPU can be emulated here: {reason}\n")
            finally:
                sys.stderr.flush()
                os._exit(code)
        connection.close()


def work(connection: socket.socket, options: str, folder: Path) -> None:
    """Answer one program until it ends."""
    greet(connection)
    # that of whoever began this server
    os.environ.pop(TEST, None)
    file, address, nbytes = share_process_memory()
    session = Session(read_options(options), folder=folder, keep_runs=False)
    service = DriverService(session, shared=True)
    send_mapping(connection, address, nbytes, file)
    Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
    while True:
        request, words, data = receive_request(connection)
        send_answer(connection, service.answer(request, words, data))


def _end_with(connection: int) -> None:
    """End this process when the program at the other end is gone."""
    watch = select.poll()
    watch.register(connection, _HANGUP)
    while not watch.poll():
        pass
    os._exit(0)


def main() -> None:
    """`python -m kernbench.ptx.doors.driver.worker LISTENER OPTIONS FOLDER`: started by `running`."""
    number, options, folder = sys.argv[1:]
    serve(socket.socket(fileno=int(number)), options, Path(folder))


if __name__ == "__main__":
    main()
