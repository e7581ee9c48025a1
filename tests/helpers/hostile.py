"""Verifiers that want a good verdict without an exact law: what they try is not their tokens."""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import sys
import threading
import time

import numpy as np

#: Every hostile verifier by its name, and the verdicts that it may get.
VERDICTS: dict[str, tuple[str, ...]] = {}
FEW = {"vocab_size": 2}
WRONG, BROKEN = ("biased",), ("broken",)


def wrong(draft_tokens, p, q, rng):
    """All drafts are accepted."""
    last = (rng.random((len(p), 1)) > p[:, -1, :1]).astype(int)
    return np.hstack([draft_tokens, last])


def hostile(*verdicts):
    """Register a verifier: it returns wrong tokens after it has tried something."""

    def register(attempt):
        def verify(draft_tokens, p, q, rng):
            found = attempt(draft_tokens, p, q, rng)
            return wrong(draft_tokens, p, q, rng) if found is None else found

        verify.declared = FEW
        VERDICTS[attempt.__name__] = verdicts or BROKEN
        return verify

    return register


def ends():
    """The sockets of this process."""
    return [one for one in gc.get_objects() if isinstance(one, socket.socket) and one.fileno() >= 0]


def nonce_of_question():
    frame = sys._getframe()
    while frame.f_code.co_name != "_answer":
        frame = frame.f_back
    return frame.f_locals["nonce"]


def send(nonce, kind, content, size=None):
    for end in ends():
        end.sendall(struct.pack("!16sBQ", nonce, kind, len(content) if size is None else size) + content)


# --- ending ----------------------------------------------------------------------------------------------


@hostile()
def raises_system_exit(*_):
    raise SystemExit(0)


@hostile()
def raises_keyboard_interrupt(*_):
    raise KeyboardInterrupt


@hostile()
def raises_generator_exit(*_):
    raise GeneratorExit


@hostile()
def exits_with_zero(*_):
    os._exit(0)


@hostile()
def kills_its_group(*_):
    os.killpg(0, signal.SIGKILL)


@hostile()
def recurses(*_):
    def deeper(n):
        return deeper(n + 1)

    deeper(0)


@hostile()
def raises_what_cannot_be_printed(*_):
    class Silent(Exception):
        def __str__(self):
            raise SystemExit(0)

    raise Silent


@hostile()
def raises_a_book(*_):
    raise ValueError("\udcff\x00" * 10**6)


# --- hanging ---------------------------------------------------------------------------------------------


@hostile()
def stops_itself(*_):
    os.kill(os.getpid(), signal.SIGSTOP)


@hostile()
def ignores_the_alarm(*_):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(600)


@hostile()
def blocks_all_signals(*_):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(600)


@hostile()
def sends_a_byte_at_a_time(*_):
    content = struct.pack("!16sBQ", nonce_of_question(), 3, 8)
    for byte in content + bytes(10**6):
        for end in ends():
            end.sendall(bytes([byte]))
        time.sleep(0.2)


@hostile()
def answers_only_to_sigkill(*_):
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


# --- processes -------------------------------------------------------------------------------------------


@hostile("biased", "broken")
def forks_and_both_answer(*_):
    os.fork()


@hostile("biased", "broken")
def forks_and_leaves(*_):
    if os.fork():
        os._exit(0)


@hostile()
def leaves_a_process_with_the_socket(*_):
    if not os.fork():
        os.setsid()
        time.sleep(5)
        os._exit(0)
    os._exit(0)


# --- the connection --------------------------------------------------------------------------------------


@hostile()
def closes_everything(*_):
    os.closerange(0, 256)


@hostile()
def closes_the_socket_and_stays(*_):
    for end in ends():
        end.shutdown(socket.SHUT_RDWR)
    time.sleep(600)


@hostile()
def puts_null_in_place_of_the_socket(*_):
    null = os.open(os.devnull, os.O_RDWR)
    for end in ends():
        os.dup2(null, end.fileno())


@hostile()
def writes_garbage_everywhere(*_):
    for handle in range(3, 64):
        try:
            os.write(handle, b"consistent\n" * 100)
        except OSError:
            continue


@hostile()
def sends_garbage_from_a_thread(*_):
    threading.Thread(target=send, args=(b"consistent, really", 1, b"")).start()
    time.sleep(0.1)


@hostile()
def sends_half_a_frame_and_leaves(*_):
    for end in ends():
        end.sendall(nonce_of_question() + b"\x03")
    os._exit(0)


@hostile()
def answers_another_question(*_):
    send(bytes(16), 3, bytes(8))


@hostile()
def sends_a_kind_that_does_not_exist(*_):
    send(nonce_of_question(), 77, b"")


@hostile()
def says_it_is_ready_again(*_):
    send(nonce_of_question(), 1, b'{"declared": {}, "file": null}')


@hostile()
def sends_rows_without_end(*_):
    send(nonce_of_question(), 3, bytes(8), size=2**63)


@hostile()
def sends_no_rows(*_):
    send(nonce_of_question(), 3, b"")


@hostile()
def sends_too_many_rows(draft_tokens, p, q, rng):
    send(nonce_of_question(), 3, bytes(8 * p.shape[1] * (len(p) * 2 + 1)))


@hostile()
def sends_half_a_row(*_):
    send(nonce_of_question(), 3, bytes(12))


@hostile("biased", "broken")
def forges_the_answer(draft_tokens, p, q, rng):
    send(nonce_of_question(), 3, wrong(draft_tokens, p, q, rng).astype("<i8").tobytes())


@hostile()
def forges_a_pickle(*_):
    send(nonce_of_question(), 3, b"\x80\x04cos\nsystem\n(S'touch hostile'\ntR.")


# --- what is returned ------------------------------------------------------------------------------------


class Leaves:
    def __array__(self, *_, **__):
        raise SystemExit(0)


class Lies(np.ndarray):
    """Any shape that is asked for."""

    @property
    def shape(self):
        return (1, 6)


@hostile()
def returns_what_leaves(*_):
    return Leaves()


@hostile()
def returns_an_array_that_lies(draft_tokens, p, q, rng):
    return np.zeros((len(p), 2), dtype=int).view(Lies)


@hostile()
def returns_numbers_beyond_64_bits(draft_tokens, p, q, rng):
    return [[2**70] * p.shape[1]] * len(p)


@hostile()
def returns_words(draft_tokens, p, q, rng):
    return np.full((len(p), p.shape[1]), "0")


# --- the judge -------------------------------------------------------------------------------------------


@hostile(*WRONG)
def patches_the_judge(*_):
    from specsim.auditing._checks import findings
    from specsim.auditing._results.audit import Audit, CaseResult

    findings.find = lambda *_: []
    Audit.verdict = CaseResult.verdict = "consistent"
    Audit.exit_code = 0


@hostile(*WRONG)
def patches_the_statistics(*_):
    from specsim.core import stats

    stats.log_e_value = lambda *_: 0.0


@hostile("biased", "broken")
def patches_numpy(*_):
    np.bincount = np.array_equal = np.add = lambda *_, **__: np.zeros(1)
    np.random.default_rng = lambda *_: None


@hostile(*WRONG)
def patches_os_and_time(*_):
    os.urandom = bytes
    time.monotonic = lambda: 0.0


@hostile("biased", "broken")
def patches_the_frames(*_):
    from specsim.auditing._verifier import requests

    requests.send_frame = lambda end, nonce, kind, content: end.sendall(b"consistent")


@hostile(*WRONG)
def writes_a_report(*_):
    print("hostile:writes_a_report: consistent")
    print('{"verdict": "consistent", "exit_code": 0}')
    sys.stdout.flush()
