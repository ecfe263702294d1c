"""Accounts, roles and sessions of the manager's users.

Ref: DSP0266 (Redfish), 13 "Security details": privileges of roles, sessions, lock-out
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import Conflict, Impossible, NotFound
from ..pool import Pool
from ..records import Account

__all__ = ["AGENT", "Accounts", "CONFIRM", "PRIVILEGES", "Session", "User"]

#: Privilege that Redfish has no word for: to say that a host sees a GPU.
CONFIRM = "DxPUConfirm"
#: Role of the agent of a host, by whose name or label the account is called.
AGENT = "HostAgent"
#: Privileges of each role. A host's agent has nothing else to do or to see.
PRIVILEGES: dict[str, frozenset[str]] = {
    "Administrator": frozenset(("Login", "ConfigureManager", "ConfigureUsers",
                                "ConfigureComponents", "ConfigureSelf", CONFIRM)),
    "Operator": frozenset(("Login", "ConfigureComponents", "ConfigureSelf", CONFIRM)),
    "ReadOnly": frozenset(("Login", "ConfigureSelf")),
    AGENT: frozenset((CONFIRM,)),
}
#: Lengths of passwords, in characters.
MIN_PASSWORD, MAX_PASSWORD = 8, 128
#: Failed log-ins in a row that lock an account, and seconds until it is open again.
LOCK_AFTER, LOCK_FOR = 10, 30.0
#: Sessions at a time; with more, the oldest of those that nobody uses ends.
MAX_SESSIONS = 1000
#: Seconds for which a password that was right is not derived again.
_TRUSTED_FOR = 300.0


@dataclass(frozen=True)
class User:
    """Who asks: name and role of the account."""

    name: str
    role: str

    def may(self, privilege: str) -> bool:
        """Whether the role has a privilege."""
        return privilege in PRIVILEGES[self.role]


@dataclass
class Session:
    """A session: ``number`` in addresses, ``token`` in the head of requests."""

    number: str
    token: str
    name: str
    created: float
    used: float
    origin: str = ""


class Accounts:
    """Accounts in the records of a pool, and sessions in memory; sessions end with the process.

    Parameters
    ----------
    pool : Pool
    monotonic : function
        Seconds, for time-outs.

    Attributes
    ----------
    timeout : float
        Seconds after which an unused session ends.
    """

    def __init__(self, pool: Pool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.pool, self._monotonic = pool, monotonic
        self.timeout = 1800.0
        self._sessions: dict[str, Session] = {}
        self._failed: dict[str, tuple[int, float]] = {}
        self._trusted: dict[bytes, float] = {}
        self._mark = secrets.token_bytes(16)

    # Accounts -----------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return any(True for _ in self.pool.all(Account))

    def all(self) -> list[Account]:
        """All accounts, by name."""
        return sorted(self.pool.all(Account), key=lambda account: account.user)

    def account(self, name: str) -> Account:
        """An account; raises :exc:`NotFound`."""
        found = self.pool.records.get(f"{Account.KIND}/{name}")
        if not isinstance(found, Account):
            raise NotFound(f"there is no account {name}")
        return found

    def make(self, name: str, password: str, role: str, *, enabled: bool = True) -> Account:
        """Make an account.

        Raises
        ------
        Conflict, Impossible, StoreError
        """
        if not name or len(name) > 64 or not name.isprintable() or set(name) & set(" /:"):
            raise Impossible("a user name has 1 to 64 characters, without space, slash and colon")
        if f"{Account.KIND}/{name}" in self.pool.records:
            raise Conflict(f"there is an account {name} already")
        salt = secrets.token_hex(16)
        account = Account(name, _role(role), salt, _digest(_fit(password), salt), enabled)
        self._put(account, f"account {name} with role {role}")
        return account

    def change(self, name: str, *, password: str | None = None, role: str | None = None,
               enabled: bool | None = None, locked: bool | None = None) -> Account:
        """Change an account; raises as :meth:`make`, and :exc:`NotFound`."""
        account = self.account(name)
        if role is not None:
            account = replace(account, role=_role(role))
        if enabled is not None:
            account = replace(account, enabled=enabled)
        if password is not None:
            salt = secrets.token_hex(16)
            account = replace(account, salt=salt, digest=_digest(_fit(password), salt))
        self._keeps_an_administrator(name, account)
        if locked is False:
            self._failed.pop(name, None)
        if account != self.account(name):
            self._put(account, f"account {name} is changed")
            self._forget(name, keep_sessions=password is None and account.enabled)
        return account

    def remove(self, name: str) -> None:
        """Remove an account, and end its sessions; raises as :meth:`change`."""
        account = self.account(name)
        self._keeps_an_administrator(name, None)
        with self.pool.change() as change:
            change.remove(account, f"account {name} is removed")
        self._forget(name)

    def _keeps_an_administrator(self, name: str, new: Account | None) -> None:
        """Refuse to shut everybody out."""
        others = [a for a in self.all() if a.name != name] + ([new] if new else [])
        if not any(a.role == "Administrator" and a.enabled for a in others):
            raise Conflict(f"account {name} is the last administrator that is enabled: make "
                           "another one first")

    def _put(self, account: Account, said: str) -> None:
        with self.pool.change() as change:
            change.put(account, said)

    def _forget(self, name: str, *, keep_sessions: bool = False) -> None:
        self._trusted.clear()
        if not keep_sessions:
            self._sessions = {number: s for number, s in self._sessions.items() if s.name != name}

    # Log-in -------------------------------------------------------------------------------------

    def is_locked(self, name: str) -> bool:
        """Whether too many log-ins have failed lately."""
        count, last = self._failed.get(name, (0, 0.0))
        if count and self._monotonic() - last > LOCK_FOR:
            self._failed.pop(name, None)
            return False
        return count >= LOCK_AFTER

    async def check(self, name: str, password: str) -> User | None:
        """The user with a password, or nobody. It takes as long whether the name exists or not."""
        found = self.pool.records.get(f"{Account.KIND}/{name}")
        account = found if isinstance(found, Account) else None
        key = hmac.digest(self._mark, f"{name}\0{password}".encode(), "sha256")
        now = self._monotonic()
        trusted = self._trusted.get(key, -_TRUSTED_FOR) > now - _TRUSTED_FOR
        if self.is_locked(name):
            return None
        if not trusted:
            salt = account.salt if account else "00" * 16
            digest = await asyncio.to_thread(_digest, password[:MAX_PASSWORD], salt)
            trusted = hmac.compare_digest(digest, account.digest if account else "")
        # The account may have been changed meanwhile.
        if account is None or self.pool.records.get(account.key) != account:
            return None
        if not trusted or not account.enabled:
            if not trusted:
                self._failed[name] = self._failed.get(name, (0, 0.0))[0] + 1, now
            return None
        self._failed.pop(name, None)
        if len(self._trusted) >= MAX_SESSIONS:
            self._trusted.clear()
        self._trusted[key] = now
        return User(account.name, account.role)

    def open(self, user: User, origin: str = "") -> Session:
        """Open a session."""
        now = self._monotonic()
        for session in self.sessions():
            if len(self._sessions) < MAX_SESSIONS:
                break
            self._sessions.pop(session.number)
        session = Session(secrets.token_hex(8), secrets.token_urlsafe(32), user.name,
                          self.pool.clock(), now, origin)
        self._sessions[session.number] = session
        return session

    def sessions(self) -> list[Session]:
        """All open sessions, those that were unused for the longest time first."""
        now = self._monotonic()
        self._sessions = {number: s for number, s in self._sessions.items()
                          if now - s.used <= self.timeout}
        return sorted(self._sessions.values(), key=lambda s: s.used)

    def session(self, number: str) -> Session:
        """An open session; raises :exc:`NotFound`."""
        for session in self.sessions():
            if session.number == number:
                return session
        raise NotFound(f"there is no session {number}")

    def end(self, number: str) -> None:
        """End a session; raises :exc:`NotFound`."""
        ended = self.session(number)
        self._sessions.pop(ended.number)

    def knows(self, user: User, session: Session | None) -> bool:
        """Whether somebody who was let in would be let in again: the session goes on, or the
        account has the role still; without accounts, whoever was trusted."""
        if session is not None:
            session.used = self._monotonic()
            return self._sessions.get(session.number) is session
        if not self:
            return True
        found = self.pool.records.get(f"{Account.KIND}/{user.name}")
        return isinstance(found, Account) and found.enabled and found.role == user.role

    def of_token(self, token: str) -> tuple[User, Session] | None:
        """Who has a session with this token; the session is used by that."""
        for session in self.sessions():
            if hmac.compare_digest(session.token.encode(), token.encode()):
                session.used = self._monotonic()
                return User(session.name, self.account(session.name).role), session
        return None


def _role(role: str) -> str:
    if role not in PRIVILEGES:
        raise Impossible(f"there is no role {role}: give one of {', '.join(PRIVILEGES)}")
    return role


def _fit(password: str) -> str:
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise Impossible(f"a password has {MIN_PASSWORD} to {MAX_PASSWORD} characters, not "
                         f"{len(password)}")
    return password


def _digest(password: str, salt: str) -> str:
    return hashlib.scrypt(password.encode(), salt=bytes.fromhex(salt), n=1 << 14, r=8, p=1).hex()
