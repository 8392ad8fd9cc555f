"""The rendezvous of a run's processes: who they are, whether the run begins, and why it ended.

They exchange small JSON records through the store of `torch.distributed` at which they met; training never waits.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from commeff.communicator.wire.group import Store, within
from commeff.training.documents import CheckpointRefused

HEARTBEAT = 0.25  # seconds between two heartbeats
GRACE = 3.0  # seconds without a heartbeat after which a member counts as gone, once something is wrong
POLL = 0.02  # seconds between two reads of the store

Facts = dict[str, Any]


class MemberLost(RuntimeError):
    """A run ended because of one of its processes: the message says which one, and what happened there."""


class Rendezvous:
    """The view of one member. No call blocks for long in the store, so that signals are handled.

    A meeting store can outlive an attempt, with all records of that attempt. So rank 0 opens a session under a fresh
    name, the others report anew to each session that they see, and accept a decision only if it names them.

    Parameters
    ----------
    meeting : the store at which all processes meet.
    rank, size : this member, and how many there are.
    timeout : seconds after which a member that waits for another gives up.

    Attributes
    ----------
    members : what each member reported, by rank; empty until the decision.
    store : of the session, once there is one.
    """

    def __init__(self, meeting: Store, rank: int, size: int, timeout: float) -> None:
        self._meeting, self.rank, self.size, self._timeout = meeting, rank, size, timeout
        self._token = uuid.uuid4().hex
        self._facts: Facts = {}
        self._first_failure: Facts | None = None
        self.members: list[Facts] = []
        self.store = meeting

    def report(self, facts: Facts) -> None:
        """Publish who this member is and whether it is ready."""
        self._facts = facts | {"token": self._token}
        if self.rank == 0:
            self._enter(self._token)
            self._meeting.set("session", self._token)

    def _enter(self, session: str) -> None:
        self.store = within(self._meeting, session)
        self.store.set(f"heartbeat/{self.rank}", "0")
        self.store.set(f"report/{self.rank}", json.dumps(self._facts))

    def reports(self) -> list[Facts]:
        """Rank 0: wait for the reports of all members; in the order of ranks."""
        deadline = time.monotonic() + self._timeout
        while not all(members := self._reported()):
            if time.monotonic() > deadline:
                missing = [rank for rank, facts in enumerate(members) if not facts]
                who = f"process{'es' * (len(missing) > 1)} {', '.join(map(str, missing))} of {self.size}"
                raise TimeoutError(f"{who} did not come within {self._timeout:g} s; is every host up and started?")
            time.sleep(POLL)
        self.members = members
        return members

    def _reported(self) -> list[Facts]:
        """What each member has reported last, since one may have been started again; {} where it has not come."""
        keys = [f"report/{rank}" for rank in range(self.size)]
        return [json.loads(self.store.get(key)) if self.store.check([key]) else {} for key in keys]

    def decide(self, code: int | None) -> None:
        """Rank 0: decide that the run begins (None), or that every member exits with `code`.

        With a code it waits until those who reported have read it, since the store may end with rank 0.
        """
        members = self.members if code is None else self._reported()
        self.store.set("decision", json.dumps({"code": code, "members": members}))
        readers = 0 if code is None else sum(map(bool, members)) - 1
        deadline = time.monotonic() + GRACE
        while self.store.add("readers", 0) < readers and time.monotonic() < deadline:
            time.sleep(POLL)

    def decision(self) -> int | None:
        """The other ranks: wait for rank 0's decision; None if the run begins, else the exit code."""
        deadline = time.monotonic() + 2 * self._timeout  # rank 0 itself may have to wait for somebody
        session = ""
        while time.monotonic() < deadline:
            if self._meeting.check(["session"]):
                newest = self._meeting.get("session").decode()
                if newest != session:
                    session = newest
                    self._enter(session)
                if self.store.check(["decision"]):
                    decision = json.loads(self.store.get("decision"))
                    self.members, code = decision["members"], decision["code"]
                    if self.members[self.rank].get("token") == self._token:
                        self.store.add("readers", 1)
                        return None if code is None else int(code)
            time.sleep(POLL)
        raise TimeoutError(f"process 0 did not decide within {2 * self._timeout:g} s whether the run begins")

    def start_heartbeat(self, on_store_lost: Callable[[], None]) -> None:
        """Send heartbeats from now on, in a thread that also reads the first failure of any member.

        Parameters
        ----------
        on_store_lost : called once the store no longer answers: the launcher is gone.
        """
        store: Store = self.store.clone()  # type: ignore[attr-defined]  # torch's stub lacks it

        def beat() -> None:
            with suppress(RuntimeError):
                for count in range(1, 2**62):
                    store.set(f"heartbeat/{self.rank}", str(count))
                    if not self._first_failure and store.add("failures", 0):
                        self._first_failure = json.loads(store.get("failures/1"))
                    time.sleep(HEARTBEAT)
            on_store_lost()

        threading.Thread(target=beat, daemon=True).start()

    def diagnose(self, error: Exception) -> tuple[MemberLost | CheckpointRefused, bool]:
        """The reason why the run ended, now that this member has met `error`, and whether this member is to report it.

        What one member refuses to go on from, all refuse. A member records its failure before its connections close, so
        the first record is the cause; unless a member ended without one: then the cause is whoever sends no heartbeat.
        """
        refused = isinstance(error, CheckpointRefused)
        reason = str(error) if refused else f"{type(error).__name__}: {' '.join(str(error).split())}"
        failure = {"rank": self.rank, "reason": reason, "refused": refused}
        try:
            place = self.store.add("failures", 1)
            self.store.set(f"failures/{place}", json.dumps(failure))
            silent = self._silent() if isinstance(error, RuntimeError) else []  # others are errors of its own
            first: Facts = json.loads(self.store.get("failures/1"))
        except RuntimeError:  # the store is gone with rank 0, which keeps it
            if self._first_failure:
                return self._cause(self._first_failure), False
            return MemberLost(f"{self._name(0)} or the launcher is gone"), self.rank == 1
        if self.rank == 0:
            time.sleep(2 * HEARTBEAT)  # the others read why, before the store may go
        speaker = min(set(range(self.size)) - set(silent))
        if silent and not first["refused"]:
            gone = f"{' and '.join(map(self._name, silent))} {'is' if len(silent) == 1 else 'are'} gone"
            return MemberLost(gone), self.rank == speaker
        return self._cause(first), self.rank == speaker

    def _silent(self) -> list[int]:
        """The members that have neither recorded a failure nor sent a heartbeat for `GRACE` seconds."""
        before, deadline = self._heartbeats(), time.monotonic() + GRACE
        while (failures := self.store.add("failures", 0)) < self.size and time.monotonic() < deadline:
            time.sleep(HEARTBEAT)
        failed = {json.loads(self.store.get(f"failures/{place}"))["rank"] for place in range(1, failures + 1)}
        still = [one == other for one, other in zip(before, self._heartbeats(), strict=True)]
        return [r for r in range(self.size) if still[r] and r not in failed] if failures < self.size else []

    def _cause(self, failure: Facts) -> MemberLost | CheckpointRefused:
        if failure["refused"]:
            return CheckpointRefused(failure["reason"])
        return MemberLost(f"{self._name(failure['rank'])}: {failure['reason']}")

    def _heartbeats(self) -> list[bytes]:
        return [self.store.get(f"heartbeat/{rank}") for rank in range(self.size)]

    def _name(self, rank: int) -> str:
        facts = self.members[rank]
        place = f", {facts['place']}," if facts.get("place") else ""
        return f"process {rank}{place} on {facts['host']} (pid {facts['pid']})"
