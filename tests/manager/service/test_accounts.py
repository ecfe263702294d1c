"""Who may do what: roles, passwords, sessions, and trust in this machine."""

import asyncio

import pytest

from dxpu_manager import Conflict, Impossible
from dxpu_manager.service.accounts import LOCK_AFTER, LOCK_FOR, MAX_SESSIONS, Accounts, User
from tests.support.service_bench import BLOCKS, ROOT, block, eventually, on_a_desk

ROOT_USER = ("root", "right password", "Administrator")
H0, A = "00000100", "00010000.1"


class _Pool:
    """A pool without a store."""

    def __init__(self):
        self.records, self.now = {}, 1e9

    def all(self, kind):
        return [record for record in self.records.values() if isinstance(record, kind)]

    def clock(self):
        return self.now

    def change(self):
        pool = self

        class Change:
            def __enter__(self):
                return self

            def __exit__(self, *exception):
                pass

            def put(self, record, said):
                pool.records[record.key] = record

            def remove(self, record, said):
                del pool.records[record.key]
        return Change()


def accounts_at(now):
    made = Accounts(_Pool(), lambda: now[0])
    made.make("root", "right password", "Administrator")
    made.make("op", "operator's", "Operator")
    return made


def checking(accounts):
    """A function that says who has a name and a password."""
    def check(name, password):
        return asyncio.run(accounts.check(name, password))
    return check


def test_a_password_is_right_or_not():
    accounts = accounts_at([0.0])
    check = checking(accounts)
    assert check("root", "right password") == User("root", "Administrator")
    assert check("root", "right passworD") is None
    assert check("nobody", "right password") is None
    account = accounts.account("root")
    assert "right" not in account.text() and len(account.digest) == 128
    accounts.change("op", enabled=False)
    assert check("op", "operator's") is None
    accounts.change("op", enabled=True, password="another one")
    assert check("op", "operator's") is None
    assert check("op", "another one") == User("op", "Operator")


def test_what_was_right_is_not_trusted_after_a_change():
    """A right password is not derived again for some time, but for this account only."""
    now = [0.0]
    accounts = accounts_at(now)
    check = checking(accounts)
    assert check("op", "operator's")
    accounts.change("op", role="ReadOnly")
    assert check("op", "operator's") == User("op", "ReadOnly")
    accounts.remove("op")
    assert check("op", "operator's") is None
    accounts.make("op", "not operator's", "Operator")
    assert check("op", "operator's") is None


def test_too_many_wrong_passwords_lock_an_account_for_a_time():
    now = [0.0]
    accounts = accounts_at(now)
    check = checking(accounts)
    for _ in range(LOCK_AFTER):
        assert check("root", "wrong") is None
    assert accounts.is_locked("root")
    assert check("root", "right password") is None
    assert check("op", "operator's")
    now[0] = LOCK_FOR + 1
    assert check("root", "right password")
    for _ in range(LOCK_AFTER):
        check("root", "wrong")
    accounts.change("root", locked=False)
    assert check("root", "right password")


def test_nobody_shuts_everybody_out():
    accounts = accounts_at([0.0])
    for change in (lambda: accounts.remove("root"),
                   lambda: accounts.change("root", role="ReadOnly"),
                   lambda: accounts.change("root", enabled=False)):
        with pytest.raises(Conflict, match="the last administrator that is enabled"):
            change()
    accounts.make("second", "right password", "Administrator")
    accounts.remove("root")


@pytest.mark.parametrize("name, password, role, says", [
    ("a b", "long enough", "Operator", "a user name has 1 to 64 characters"),
    ("a/b", "long enough", "Operator", "a user name has"), ("", "long enough", "Operator", "name"),
    ("a:b", "long enough", "Operator", "a user name has"),
    ("ab", "short", "Operator", "a password has 8 to 128 characters, not 5"),
    ("ab", "x" * 129, "Operator", "a password has 8 to 128 characters, not 129"),
    ("ab", "long enough", "King", "there is no role King: give one of Administrator, ")])
def test_what_is_no_account(name, password, role, says):
    accounts = accounts_at([0.0])
    with pytest.raises(Impossible, match=says):
        accounts.make(name, password, role)
    with pytest.raises(Conflict, match="there is an account op already"):
        accounts.make("op", "long enough", "Operator")


def test_sessions_end_when_unused_and_are_not_without_number():
    now = [0.0]
    accounts = accounts_at(now)
    user = User("op", "Operator")
    session = accounts.open(user)
    now[0] = accounts.timeout - 1
    assert accounts.of_token(session.token)[0] == user
    now[0] = 2 * accounts.timeout - 2
    assert accounts.of_token(session.token)
    now[0] += accounts.timeout + 1
    assert accounts.of_token(session.token) is None
    first = accounts.open(user)
    for _ in range(MAX_SESSIONS):
        now[0] += 0.001
        accounts.open(user)
    assert len(accounts.sessions()) == MAX_SESSIONS and accounts.of_token(first.token) is None
    accounts.change("op", password="another one")
    assert accounts.sessions() == []


def test_roles_allow_what_they_say(tmp_path):
    """DSP0266, 13: no log-in, no answer; ReadOnly reads, Operator attaches, Administrator makes
    accounts; all change their own password."""
    async def does(desk):
        assert (await desk.http.get(f"{ROOT}/")).status_code == 200
        for path in (f"{ROOT}/Systems", "/metrics", f"{ROOT}/EventService/SSE"):
            refused = await desk.http.get(path)
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"].startswith("Basic")
        assert (await desk.http.get("/healthz")).status_code == 200
        accounts = f"{ROOT}/AccountService/Accounts"
        attach = f"{ROOT}/Systems/{H0}/Actions/Oem/DxPU.Attach"
        body = {"ResourceBlocks": [block(A)]}
        async with desk.client(auth=ROOT_USER[:2]) as root, \
                desk.client(auth=("reads", "reads only")) as reads, \
                desk.client(auth=("works", "works here")) as works:
            for name, password, role in (("reads", "reads only", "ReadOnly"),
                                         ("works", "works here", "Operator")):
                made = await root.post(accounts, json={
                    "UserName": name, "Password": password, "RoleId": role})
                assert made.status_code == 201 and made.json()["Password"] is None
            assert (await reads.get(f"{BLOCKS}/{A}")).status_code == 200
            for http, method, path, content in (
                    (reads, "POST", attach, body), (reads, "DELETE", f"{accounts}/works", None),
                    (works, "POST", accounts, {"UserName": "x", "Password": "long enough",
                                               "RoleId": "Administrator"}),
                    (works, "GET", f"{accounts}/root", None),
                    (works, "PATCH", f"{accounts}/reads", {"Password": "stolen away"}),
                    (works, "PATCH", f"{ROOT}/SessionService", {"SessionTimeout": 30})):
                answer = await http.request(method, path, json=content)
                assert answer.status_code == 403, (method, path)
                assert "needs the privilege Configure" in answer.text
            assert (await works.post(attach, json=body)).status_code == 202
            own = await reads.patch(f"{accounts}/reads", json={"Password": "reads still"})
            assert own.status_code == 200
            assert (await reads.get(f"{BLOCKS}/{A}")).status_code == 401
            # A user's own role is not a user's to change.
            higher = await works.patch(f"{accounts}/works", json={"RoleId": "Administrator"})
            assert higher.status_code == 400

    on_a_desk(tmp_path, does, account=ROOT_USER)


def test_an_agent_confirms_gpus_of_its_host_and_nothing_else(tmp_path):
    """Its account is called as the host, by serial number or label."""
    async def does(desk):
        accounts, path = f"{ROOT}/AccountService/Accounts", f"{ROOT}/Systems/{{}}/Actions/Oem/"
        path += "DxPU.Confirm"
        async with desk.client(auth=ROOT_USER[:2]) as root, \
                desk.client(auth=(H0, "says a word")) as agent, \
                desk.client(auth=("render-7", "says a word")) as other:
            for name in (H0, "render-7"):
                made = await root.post(accounts, json={
                    "UserName": name, "Password": "says a word", "RoleId": "HostAgent"})
                assert made.status_code == 201
            own = {"Oem": {"DxPU": {"Agent": True}}}
            assert (await root.patch(f"{ROOT}/Systems/{H0}", json=own)).status_code == 200
            begun = await root.post(f"{ROOT}/Systems/{H0}/Actions/Oem/DxPU.Attach",
                                    json={"ResourceBlocks": [block(A)]})
            task = begun.json()["@odata.id"]

            async def waits():
                shown = (await root.get(task)).json()
                return shown["Oem"]["DxPU"]["Evidence"] == [
                    f"GPU {A}: link, windows; the agent of host {H0} has not said that it sees the "
                    "GPU"]
            await eventually(waits)
            for refused in (await other.post(path.format(H0), json={"Gpu": A}),
                            await agent.get(f"{ROOT}/Systems/{H0}"), await agent.get("/metrics"),
                            await agent.post(f"{ROOT}/Systems/{H0}/Actions/Oem/DxPU.Detach",
                                             json={"ResourceBlocks": [block(A)]}),
                            await agent.patch(f"{accounts}/{H0}", json={"Password": "another1"})):
                assert refused.status_code == 403, refused.url
            for address, status in (("41:00.0", 409), ("41", 400), ("0000:02:00.0", 200)):
                answer = await agent.post(path.format(H0), json={"Address": address})
                assert answer.status_code == status, answer.text
            assert answer.json()["Gpu"] == A

            async def over():
                return (await root.get(task)).json()["TaskState"] == "Completed"
            await eventually(over)
            shown = (await root.get(task)).json()["Oem"]["DxPU"]["Evidence"]
            assert shown == [f"GPU {A}: link, windows, word of the agent"]
            held = (await root.get(f"{BLOCKS}/{A}")).json()["Oem"]["DxPU"]
            assert held["Evidence"] == ["link", "windows", "word of the agent"]
            # By the label of the host, too.
            await root.patch(f"{ROOT}/Systems/{H0}", json={"Oem": {"DxPU": {"Label": "render-7"}}})
            answer = await other.post(path.format("render-7"), json={"Gpu": A})
            assert answer.status_code == 200
            role = (await root.get(f"{ROOT}/AccountService/Roles/HostAgent")).json()
            assert (role["AssignedPrivileges"], role["OemPrivileges"]) == ([], ["DxPUConfirm"])

    on_a_desk(tmp_path, does, account=ROOT_USER)


def test_a_session_is_opened_used_and_ended(tmp_path):
    async def does(desk):
        sessions = f"{ROOT}/SessionService/Sessions"
        wrong = await desk.http.post(sessions, json={"UserName": "root", "Password": "wrong one"})
        assert wrong.status_code == 401
        made = await desk.http.post(sessions, json={"UserName": "root",
                                                    "Password": "right password"})
        assert made.status_code == 201 and "right" not in made.text
        head = {"X-Auth-Token": made.headers["X-Auth-Token"]}
        assert made.headers["X-Auth-Token"] not in made.text
        assert made.json()["Roles"] == ["Administrator"]
        assert (await desk.http.get(f"{ROOT}/Systems", headers=head)).status_code == 200
        forged = {"X-Auth-Token": made.headers["X-Auth-Token"][:-1] + "x"}
        assert (await desk.http.get(f"{ROOT}/Systems", headers=forged)).status_code == 401
        timeout = await desk.http.patch(f"{ROOT}/SessionService", headers=head,
                                        json={"SessionTimeout": 60})
        assert timeout.status_code == 200 and desk.service.accounts.timeout == 60
        ended = await desk.http.delete(made.headers["Location"], headers=head)
        assert ended.status_code == 204
        assert (await desk.http.get(f"{ROOT}/Systems", headers=head)).status_code == 401

    on_a_desk(tmp_path, does, account=ROOT_USER)


def test_without_accounts_only_this_machine_is_trusted(tmp_path):
    """A page of somebody else, open in a browser here, can neither rename itself to this machine
    (DNS rebinding) nor send requests across origins."""
    async def does(desk):
        for head, status in (({}, 200), ({"Host": "127.0.0.1:7080"}, 200),
                             ({"Host": "[::1]:7080"}, 200), ({"Host": "evil.example"}, 401),
                             ({"Host": "localhost.evil.example:80"}, 401),
                             ({"Origin": "http://localhost:7080"}, 200),
                             ({"Origin": "https://evil.example"}, 401),
                             ({"Origin": "null"}, 401)):
            answer = await desk.http.get(f"{ROOT}/Systems", headers=head)
            assert answer.status_code == status, head
        # A form of a page cannot send JSON.
        form = await desk.http.post(f"{ROOT}/EventService/Subscriptions", content=b"{}",
                                    headers={"Content-Type": "text/plain"})
        assert form.status_code == 415

    on_a_desk(tmp_path, does)
