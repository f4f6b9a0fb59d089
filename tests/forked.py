"""Python programs in processes of their own, forked from one that has imported torch and netvitals already.

``Programs`` starts that process once per pytest worker. Its ``run`` and ``Popen`` take the commands of ``subprocess``
(``[sys.executable, "-c", code]``, a script, ``-m module``) and save the seconds of import. A program begins as
``__main__`` and ends as any other: exit handlers, tracebacks, exit codes and signals are real. Do not use it to test
what an import loads.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from subprocess import PIPE

SERVER = """
import gc, os, signal, socket, sys
sys.path[:0] = [""]
for name in ({preload}):
    __import__(name)
gc.freeze()
door = socket.socket(fileno={fd})
job = None
while job is None:
    text, fds, _, _ = socket.recv_fds(door, 1 << 20, 4)
    if not text:
        os._exit(0)
    nanny = os.fork()
    if nanny:
        for fd in fds:
            os.close(fd)
        os.waitpid(nanny, 0)
        continue
    if os.fork():  # the server waits for this one only, and init for the nanny
        os._exit(0)
    pid = os.fork()
    if pid:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for fd in (*fds[:3], {fd}, 0, 1, 2):
            os.close(fd)
        os.write(fds[3], b"%d\\n" % pid)
        os.write(fds[3], b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    import json
    job = json.loads(text)
door.close()
for fd, to in zip(fds, (0, 1, 2)):
    os.dup2(fd, to)
for fd in fds:
    os.close(fd)
if job["session"]:
    os.setsid()
os.chdir(job["cwd"])
os.environ.clear()
os.environ.update(job["env"])
sys.path[0] = "" if job["kind"] != "file" else os.path.dirname(os.path.abspath(job["argv"][0]))
sys.path[1:1] = [p for p in job["env"].get("PYTHONPATH", "").split(os.pathsep) if p and p not in sys.path]
sys.argv = job["argv"]
if job["kind"] == "module":
    import runpy
    runpy.run_module(job["text"], run_name="__main__", alter_sys=True)
else:
    if job["kind"] == "file":
        __file__ = job["argv"][0]
        job["text"] = open(__file__, encoding="utf-8").read()
    code = compile(job["text"], job["argv"][0], "exec")
    for name in ("door", "text", "fds", "nanny", "pid", "job", "fd", "to", "name"):
        globals().pop(name, None)
    exec(code, globals())
"""
PRELOAD = (
    "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel",
    "netvitals.watching.api", "netvitals.vitals", "netvitals.forecasts", "netvitals.findings",
)  # fmt: skip


class Programs:
    """Starts programs; ``close`` ends the process they are forked from."""

    def __init__(self, preload=PRELOAD):
        self._preload, self._door, self._server = preload, None, None

    def _open(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        code = SERVER.format(preload="".join(f"{name!r}, " for name in self._preload), fd=theirs.fileno())
        self._server = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()])
        theirs.close()
        self._door = ours

    def Popen(self, command, **options):
        """As ``subprocess.Popen`` for a Python program: stdout, stderr, text, env, cwd, start_new_session."""
        if self._door is None:
            self._open()
        return Program(self._door, [str(c) for c in command], **options)

    def run(self, command, *, capture_output=False, timeout=None, check=False, **options):
        """As ``subprocess.run``."""
        if capture_output:
            options |= {"stdout": PIPE, "stderr": PIPE}
        program = self.Popen(command, **options)
        try:
            out, err = program.communicate(timeout=timeout)
        except BaseException:
            program.kill()
            raise
        done = subprocess.CompletedProcess(command, program.returncode, out, err)
        if check:
            done.check_returncode()
        return done

    def close(self):
        """End the server; programs that run go on."""
        if self._door is not None:
            self._door.close()
            self._server.wait()
            self._door = None


class Program(subprocess.Popen):
    """A program that runs: what ``subprocess.Popen`` offers."""

    def __init__(self, door, command, *, stdout=None, stderr=None, text=False, env=None, cwd=None, **options):
        session = options.pop("start_new_session", False)
        assert not options and command[0] == sys.executable, f"{options} or {command[0]} is not for a forked program"
        if command[1] in ("-c", "-m"):
            kind = {"-c": "code", "-m": "module"}[command[1]]
            job = {"kind": kind, "text": command[2], "argv": [command[1], *command[3:]]}
        else:
            job = {"kind": "file", "argv": command[1:]}
        job |= {"env": dict(os.environ if env is None else env), "cwd": str(cwd or os.getcwd()), "session": session}
        self.args, self.returncode, self.encoding, self.errors = command, None, None, None
        self.stdin, self.pid, self._child_created = None, None, False
        self._input, self._communication_started, self._fileobj2output = None, False, {}
        self.text_mode, self.universal_newlines = text, text
        theirs, self.stdout = self._pipe(stdout, 1, text)
        errors, self.stderr = self._pipe(stderr, 2, text)
        nothing = os.open(os.devnull, os.O_RDONLY)
        ended, status = os.pipe()
        sent = [nothing, theirs, errors, status]
        try:
            socket.send_fds(door, [json.dumps(job).encode()], sent)
        finally:
            for fd in sent:
                os.close(fd)
        self._ended = os.fdopen(ended, "rb", buffering=0)
        self.pid = int(self._line())

    @staticmethod
    def _pipe(where, fd, text):
        if where is None:
            return os.dup(fd), None
        if where == subprocess.DEVNULL:
            return os.open(os.devnull, os.O_WRONLY), None
        ours, theirs = os.pipe()
        return theirs, os.fdopen(ours, "r" if text else "rb", errors="replace" if text else None)

    def _line(self):
        text = b""
        while not text.endswith(b"\n"):
            more = self._ended.read(1)
            assert more, "the process that programs are forked from has died"
            text += more
        return text

    def _wait(self, timeout):
        import select

        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(self._line())
        return self.returncode

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def __del__(self):
        self._ended.close()
