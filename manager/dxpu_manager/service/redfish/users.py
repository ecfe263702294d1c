"""Accounts, roles and sessions.

Ref: DSP0268, AccountService, ManagerAccount, Role, SessionService, Session; DSP0266, 13
"""

from typing import Any

from ...records import Account
from ..accounts import (
    CONFIRM, LOCK_AFTER, LOCK_FOR, MAX_PASSWORD, MIN_PASSWORD, PRIVILEGES, Session, User,
)
from .body import Field, check
from .messages import refusal
from .schemas import typed
from .shown import time
from .table import ROOT, Answer, Ask, collection, link, table

__all__: list[str] = []

_ACCOUNTS = f"{ROOT}/AccountService/Accounts"
_SESSIONS = f"{ROOT}/SessionService/Sessions"


@table.get(f"{ROOT}/AccountService")
def service(ask: Ask) -> dict[str, Any]:
    """The service of accounts."""
    return {
        "@odata.type": typed("AccountService"), "Id": "AccountService", "Name": "Accounts",
        "ServiceEnabled": True, "Status": {"State": "Enabled", "Health": "OK"},
        "MinPasswordLength": MIN_PASSWORD, "MaxPasswordLength": MAX_PASSWORD,
        "AccountLockoutThreshold": LOCK_AFTER, "AccountLockoutDuration": int(LOCK_FOR),
        "AccountLockoutCounterResetAfter": int(LOCK_FOR), "HTTPBasicAuth": "Enabled",
        "SupportedAccountTypes": ["Redfish"],
        "Accounts": link("AccountService", "Accounts"), "Roles": link("AccountService", "Roles"),
    }


@table.get(_ACCOUNTS)
def accounts(ask: Ask) -> dict[str, Any]:
    """All accounts."""
    return collection("ManagerAccount", "Accounts", [
        link("AccountService", "Accounts", account.user)
        for account in ask.service.accounts.all()])


@table.get(f"{_ACCOUNTS}/{{account}}", "ConfigureUsers")
def account(ask: Ask, account: str) -> dict[str, Any]:
    """An account."""
    held = ask.record(Account, account, "account")
    return {
        "@odata.type": typed("ManagerAccount"), "Id": held.user, "Name": f"Account {held.user}",
        "UserName": held.user, "RoleId": held.role, "Password": None, "Enabled": held.enabled,
        "Locked": ask.service.accounts.is_locked(held.user), "AccountTypes": ["Redfish"],
        "Links": {"Role": link("AccountService", "Roles", held.role)},
    }


_ROLE = Field("RoleId", (str,), tuple(PRIVILEGES))


@table.post(_ACCOUNTS, "ConfigureUsers")
def make_account(ask: Ask) -> Answer:
    """Make an account."""
    values, _ = check(ask.body, (
        Field("UserName", (str,), required=True), Field("Password", (str,), required=True),
        Field("RoleId", (str,), tuple(PRIVILEGES), required=True), Field("Enabled", (bool,)),
        Field("Locked", (bool,)), Field("AccountTypes", (list,)), Field("Name", (str,)),
        Field("Description", (str,))))
    if values.get("AccountTypes", ["Redfish"]) != ["Redfish"]:
        raise refusal(400, "PropertyValueNotInList", "AccountTypes must be Redfish alone",
                      str(values["AccountTypes"]), "AccountTypes")
    made = ask.service.accounts.make(values["UserName"], values["Password"], values["RoleId"],
                                     enabled=values.get("Enabled", True))
    address = link("AccountService", "Accounts", made.user)["@odata.id"]
    return Answer(201, {"@odata.id": address, **account(ask, made.user)}, {"Location": address})


@table.patch(f"{_ACCOUNTS}/{{account}}", "ConfigureUsers")
def change_account(ask: Ask, account: str) -> Answer | None:
    """Change an account; everybody may change their own password."""
    held, shown = ask.record(Account, account, "account"), _read(ask, account)
    fields = [Field("Password", (str,))]
    if ask.user.may("ConfigureUsers"):
        fields += [_ROLE, Field("Enabled", (bool,)), Field("Locked", (bool,), (False,))]
    values, wrong = check(ask.body, fields, readable=shown)
    ask.service.accounts.change(
        held.user, password=values.get("Password"), role=values.get("RoleId"),
        enabled=values.get("Enabled"), locked=values.get("Locked"))
    return ask.partly(wrong, _read(ask, account))


def _read(ask: Ask, name: str) -> dict[str, Any]:
    return account(ask, name)


@table.delete(f"{_ACCOUNTS}/{{account}}", "ConfigureUsers")
def remove_account(ask: Ask, account: str) -> None:
    """Remove an account."""
    ask.service.accounts.remove(ask.record(Account, account, "account").user)


@table.get(f"{ROOT}/AccountService/Roles")
def roles(ask: Ask) -> dict[str, Any]:
    """All roles."""
    return collection("Role", "Roles", [link("AccountService", "Roles", role)
                                        for role in PRIVILEGES])


@table.get(f"{ROOT}/AccountService/Roles/{{role}}")
def role(ask: Ask, role: str) -> dict[str, Any]:
    """A role."""
    if role not in PRIVILEGES:
        raise ask.missing(f"role {role}")
    return {"@odata.type": typed("Role"), "Id": role, "Name": f"Role {role}", "RoleId": role,
            "IsPredefined": True, "AssignedPrivileges": sorted(PRIVILEGES[role] - {CONFIRM}),
            "OemPrivileges": sorted(PRIVILEGES[role] & {CONFIRM})}


# Sessions ---------------------------------------------------------------------------------------


@table.get(f"{ROOT}/SessionService")
def session_service(ask: Ask) -> dict[str, Any]:
    """The service of sessions."""
    return {"@odata.type": typed("SessionService"), "Id": "SessionService", "Name": "Sessions",
            "ServiceEnabled": True, "SessionTimeout": int(ask.service.accounts.timeout),
            "Status": {"State": "Enabled", "Health": "OK"},
            "Sessions": link("SessionService", "Sessions")}


@table.patch(f"{ROOT}/SessionService", "ConfigureManager")
def change_session_service(ask: Ask) -> Answer | None:
    """Set the time after which unused sessions end."""
    values, wrong = check(ask.body, (Field("SessionTimeout", (int,), least=30),),
                          readable=session_service(ask))
    timeout = values["SessionTimeout"]
    if timeout > 86400:
        raise refusal(400, "PropertyValueError", "SessionTimeout is 30 to 86400 seconds",
                      "SessionTimeout")
    ask.service.set("session_timeout", str(timeout))
    ask.service.accounts.timeout = float(timeout)
    return ask.partly(wrong, session_service(ask))


@table.get(_SESSIONS)
def sessions(ask: Ask) -> dict[str, Any]:
    """All open sessions."""
    return collection("Session", "Sessions", [
        link("SessionService", "Sessions", session.number)
        for session in ask.service.accounts.sessions()])


def _shown(ask: Ask, session: Session) -> dict[str, Any]:
    return {"@odata.type": typed("Session"), "Id": session.number,
            "Name": f"Session of {session.name}", "UserName": session.name, "Password": None,
            "Roles": [ask.service.accounts.account(session.name).role],
            "CreatedTime": time(session.created), "SessionType": "Redfish",
            "ClientOriginIPAddress": session.origin}


def _session(ask: Ask, number: str) -> Session:
    for session in ask.service.accounts.sessions():
        if session.number == number:
            return session
    raise ask.missing(f"session {number}")


@table.get(f"{_SESSIONS}/{{session}}", "ConfigureManager")
def session(ask: Ask, session: str) -> dict[str, Any]:
    """A session."""
    return _shown(ask, _session(ask, session))


async def _log_in(ask: Ask) -> Answer:
    """Open a session with name and password."""
    values, _ = check(ask.body, (Field("UserName", (str,), required=True),
                                 Field("Password", (str,), required=True)))
    user: User | None = await ask.service.accounts.check(values["UserName"], values["Password"])
    if user is None:
        raise refusal(401, "ResourceAtUriUnauthorized",
                      "name or password is wrong, or too many log-ins have failed", ask.path, "")
    made = ask.service.accounts.open(user, ask.origin)
    address = link("SessionService", "Sessions", made.number)["@odata.id"]
    return Answer(201, {"@odata.id": address, **_shown(ask, made)},
                  {"Location": address, "X-Auth-Token": made.token})


table.post(_SESSIONS, "")(_log_in)
table.post(f"{_SESSIONS}/Members", "")(_log_in)


@table.delete(f"{_SESSIONS}/{{session}}", "ConfigureManager")
def log_out(ask: Ask, session: str) -> None:
    """End a session."""
    ask.service.accounts.end(_session(ask, session).number)
