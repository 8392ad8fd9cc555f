"""What the members of a run tell each other outside the training: who they are, whether it begins, why it ended.

They speak through the store at which they met. Training itself never waits for it.
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
from commeff.experiments.run.crew import MemberLost

BEAT = 0.25  # seconds between two signs of life
GRACE = 3.0  # seconds without one after which a member counts as gone, once something is wrong
LOOK = 0.02  # seconds between two looks at the store

Facts = dict[str, Any]


class Council:
    """The view of one member. Nothing here blocks for long in the store, so that signals are heard.

    A meeting place can outlive an attempt, with all that was said there. So rank 0 opens a session under a name of its
    own, the others report anew to each that they see, and believe a verdict only if it names them.
    """

    def __init__(self, meeting: Store, rank: int, size: int, patience: float) -> None:
        self._meeting, self.rank, self.size, self._patience = meeting, rank, size, patience
        self._token = uuid.uuid4().hex
        self._facts: Facts = {}
        self._heard: Facts | None = None  # who fell first, once anybody has
        self.members: list[Facts] = []
        self.store = meeting  # of the session, once there is one

    def report(self, facts: Facts) -> None:
        """Say who this is and whether it is ready."""
        self._facts = facts | {"token": self._token}
        if self.rank == 0:
            self._enter(self._token)
            self._meeting.set("session", self._token)

    def _enter(self, session: str) -> None:
        self.store = within(self._meeting, session)
        self.store.set(f"beat/{self.rank}", "0")
        self.store.set(f"report/{self.rank}", json.dumps(self._facts))

    def reports(self) -> list[Facts]:
        """What everybody has reported, in the order of ranks; rank 0 waits for it."""
        deadline = time.monotonic() + self._patience
        keys = [f"report/{rank}" for rank in range(self.size)]
        while missing := [rank for rank, key in enumerate(keys) if not self.store.check([key])]:
            if time.monotonic() > deadline:
                who = f"process{'es' * (len(missing) > 1)} {', '.join(map(str, missing))} of {self.size}"
                raise TimeoutError(f"{who} did not come within {self._patience:g} s; is every host up and started?")
            time.sleep(LOOK)
        return [json.loads(self.store.get(key)) for key in keys]

    def begin(self, members: list[Facts]) -> None:
        """Rank 0: the run begins, and these take part."""
        self.members = members
        self.store.set("verdict", json.dumps({"code": None, "members": members}))

    def dismiss(self, code: int) -> None:
        """Rank 0: there is nothing to do; everybody leaves with this exit code. Waits until all who came have heard,
        since the store may go when rank 0 does.
        """
        keys = [f"report/{rank}" for rank in range(self.size)]
        came = [json.loads(self.store.get(key)) if self.store.check([key]) else {} for key in keys]
        self.store.set("verdict", json.dumps({"code": code, "members": came}))
        deadline = time.monotonic() + GRACE
        while self.store.add("heard", 0) < sum(map(bool, came)) - 1 and time.monotonic() < deadline:
            time.sleep(LOOK)

    def verdict(self) -> int | None:
        """The others: None if the run begins, else the exit code to leave with."""
        deadline = time.monotonic() + 2 * self._patience  # rank 0 itself may have to wait for somebody
        session = ""
        while time.monotonic() < deadline:
            if self._meeting.check(["session"]):
                newest = self._meeting.get("session").decode()
                if newest != session:
                    session = newest
                    self._enter(session)
                if self.store.check(["verdict"]):
                    verdict = json.loads(self.store.get("verdict"))
                    self.members, code = verdict["members"], verdict["code"]
                    if self.members[self.rank].get("token") == self._token:
                        self.store.add("heard", 1)
                        return None if code is None else int(code)
            time.sleep(LOOK)
        raise TimeoutError(f"process 0 did not say within {2 * self._patience:g} s whether the run begins")

    def attend(self, abandoned: Callable[[], None]) -> None:
        """Give signs of life from now on, and hear who falls. Once nobody keeps the store, call `abandoned`: the
        launcher is gone.
        """
        line: Store = self.store.clone()  # type: ignore[attr-defined]  # torch's stub lacks it

        def beat() -> None:
            with suppress(RuntimeError):
                for count in range(1, 2**62):
                    line.set(f"beat/{self.rank}", str(count))
                    if not self._heard and line.add("fallen", 0):
                        self._heard = json.loads(line.get("fallen/1"))
                    time.sleep(BEAT)
            abandoned()

        threading.Thread(target=beat, daemon=True).start()

    def lost(self, error: Exception) -> tuple[MemberLost, bool]:
        """Why the run ended, now that this member has met `error`, and whether it is for this member to say so.

        Who falls tells it before its connections close, so the first to tell is the cause; unless somebody fell
        without a word: then it is whoever gives no sign of life.
        """
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        try:
            place = self.store.add("fallen", 1)
            self.store.set(f"fallen/{place}", json.dumps({"rank": self.rank, "reason": reason}))
            silent = self._silent() if isinstance(error, RuntimeError) else []  # others are errors of its own
            first: Facts = json.loads(self.store.get("fallen/1"))
        except RuntimeError:  # the store is gone with rank 0, which keeps it
            if self._heard:
                return MemberLost(self._told(self._heard)), False
            return MemberLost(f"{self._name(0)} or the launcher is gone"), self.rank == 1
        if self.rank == 0:
            time.sleep(2 * BEAT)  # the others hear why, before the store may go
        speaker = min(set(range(self.size)) - set(silent))
        if silent:
            text = f"{' and '.join(map(self._name, silent))} {'is' if len(silent) == 1 else 'are'} gone"
        else:
            text = self._told(first)
        return MemberLost(text), self.rank == speaker

    def _silent(self) -> list[int]:
        """Members that have neither told of an error nor given a sign of life for a while."""
        before, deadline = self._beats(), time.monotonic() + GRACE
        while (fallen := self.store.add("fallen", 0)) < self.size and time.monotonic() < deadline:
            time.sleep(BEAT)
        told = {json.loads(self.store.get(f"fallen/{place}"))["rank"] for place in range(1, fallen + 1)}
        still = [one == other for one, other in zip(before, self._beats(), strict=True)]
        return [rank for rank in range(self.size) if still[rank] and rank not in told] if fallen < self.size else []

    def _told(self, fallen: Facts) -> str:
        return f"{self._name(fallen['rank'])}: {fallen['reason']}"

    def _beats(self) -> list[bytes]:
        return [self.store.get(f"beat/{rank}") for rank in range(self.size)]

    def _name(self, rank: int) -> str:
        facts = self.members[rank]
        return f"process {rank} on {facts['host']} (pid {facts['pid']})"
