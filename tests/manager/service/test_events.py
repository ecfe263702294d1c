"""Events: streams, subscribers, slow readers, and a thousand of them."""

import asyncio
import json
import resource

import pytest

from dxpu_manager.service.hub import Hub
from dxpu_manager.store import Event
from tests.support.service_bench import ROOT, eventually, on_a_desk

A, B, H0 = "00010000.1", "00010000.2", "00000100"
SSE = f"{ROOT}/EventService/SSE"
SUBSCRIPTIONS = "EventService/Subscriptions"


def texts(events):
    return [event["Events"][0]["Message"] for event in events]


async def read(http, until, *, after=None):
    """Events of a stream until ``until`` holds for them."""
    heads = {} if after is None else {"Last-Event-ID": str(after)}
    got = []
    async with http.stream("GET", SSE, headers=heads) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                got.append(json.loads(line.removeprefix("data:")))
                if until(got):
                    return got
    return got


def test_a_stream_has_each_event_once_and_goes_on_where_it_was_cut(tmp_path):
    async def does(desk):
        first = await read(desk.http, lambda got: len(got) == 5, after=0)
        assert [int(event["Id"]) for event in first] == [1, 2, 3, 4, 5]
        reading = asyncio.create_task(read(
            desk.http, lambda got: "the host has it" in texts(got)[-1], after=5))
        await asyncio.sleep(0.2)
        await desk.attach(H0, A)
        got = await reading
        numbers = [int(event["Id"]) for event in got]
        assert numbers == list(range(6, 6 + len(numbers)))
        assert f"GPU {A}: attaching -> attached, the host has it" in texts(got)
        one = next(event for event in got if "attaching -> attached" in texts([event])[0])
        assert one["Events"][0]["OriginOfCondition"] == {
            "@odata.id": f"{ROOT}/CompositionService/ResourceBlocks/{A}"}
        assert one["Events"][0]["MessageId"] == "DxPU.1.0.GpuChanged"

    on_a_desk(tmp_path, does)


def test_no_event_says_a_secret(tmp_path):
    """Records have keys of pairs, and digests of passwords."""
    async def does(desk):
        async with desk.client(auth=("root", "right password")) as http:
            await http.post(f"{ROOT}/AccountService/Accounts", json={
                "UserName": "second", "Password": "right password", "RoleId": "ReadOnly"})
            await http.post(f"{ROOT}/Systems/{H0}/Actions/Oem/DxPU.Attach", json={
                "ResourceBlocks": [{"@odata.id": f"/{A}"}]})
            await eventually(lambda: desk.cards(0x100) == {A})
            newest = desk.pool.newest
            got = await read(http, lambda got: int(got[-1]["Id"]) >= newest, after=0)
        text = json.dumps(got)
        secrets = [desk.service.accounts.account(name) for name in ("root", "second")]
        for one in secrets:
            assert one.digest not in text and one.salt not in text
        pairs = [record for key, record in desk.pool.records.items() if key.startswith("pair/")]
        assert len(pairs) == 1 and pairs[0].secret not in text
        assert "second" in text

    on_a_desk(tmp_path, does, account=("root", "right password", "Administrator"))


def test_a_stream_ends_with_the_right_to_read_it(tmp_path):
    """A session that is ended, and an account that is removed."""
    async def does(desk):
        sessions = f"{ROOT}/SessionService/Sessions"
        made = await desk.http.post(sessions, json={"UserName": "root",
                                                    "Password": "right password"})
        head = {"X-Auth-Token": made.headers["X-Auth-Token"]}
        async with desk.client(auth=("root", "right password")) as root, \
                desk.client(headers=head) as by_session, \
                desk.client(auth=("second", "right password")) as second:
            await root.post(f"{ROOT}/AccountService/Accounts", json={
                "UserName": "second", "Password": "right password", "RoleId": "ReadOnly"})
            streams = [asyncio.create_task(read(http, lambda got: False))
                       for http in (by_session, second, root)]
            await eventually(lambda: len(desk.service.hub.listeners) == 3)
            assert (await root.delete(made.headers["Location"])).status_code == 204
            await root.delete(f"{ROOT}/AccountService/Accounts/second")
            desk.service.manager.spare(A)
            ended = await asyncio.gather(*streams[:2])
            assert not any("made a spare" in text for got in ended for text in texts(got))
            assert not streams[2].done()
            streams[2].cancel()

    on_a_desk(tmp_path, does, account=("root", "right password", "Administrator"))


class Receiver:
    """A subscriber: keeps the events that come, and answers as told."""

    def __init__(self, status=204):
        self.status, self.got, self.heads, self.stalls = status, [], [], False

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception):
        self._server.close()

    async def _take(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                heads = dict(line.split(": ", 1) for line in lines[1:] if line)
                body = await reader.readexactly(int(heads["Content-Length"]))
                self.heads.append(heads)
                while self.stalls:
                    await asyncio.sleep(0.02)
                self.got.append(json.loads(body))
                writer.write(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % self.status)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def test_a_subscriber_gets_each_event_in_order(tmp_path):
    async def does(desk):
        async with Receiver() as receiver:
            made = await desk.ask("POST", SUBSCRIPTIONS, {
                "Destination": f"http://127.0.0.1:{receiver.port}/events", "Protocol": "Redfish",
                "Context": "rack 7", "ResourceTypes": ["ResourceBlock"],
                "HttpHeaders": [{"X-Token": "secret"}]}, status=201)
            assert made["HttpHeaders"] == [] and "secret" not in json.dumps(made)
            await desk.attach(H0, A)
            await eventually(lambda: any("the host has it" in texts([event])[0]
                                         for event in receiver.got))
            numbers = [int(event["Id"]) for event in receiver.got]
            assert numbers == sorted(set(numbers))
            assert {event["Context"] for event in receiver.got} == {"rack 7"}
            assert all(text.startswith("GPU ") for text in texts(receiver.got))
            assert receiver.heads[0]["X-Token"] == "secret"
            await desk.ask("DELETE", made["@odata.id"], status=204)
            before = len(receiver.got)
            await desk.attach(H0, B)
            await asyncio.sleep(0.2)
            assert len(receiver.got) == before
            gone = await desk.ask("GET", made["@odata.id"], status=404)
            assert gone["error"]["message"] == "there is no subscription 1"

    on_a_desk(tmp_path, does)


@pytest.mark.parametrize("policy", ["SuspendRetries", "TerminateAfterRetries"])
def test_a_subscriber_that_refuses_is_suspended_or_removed(tmp_path, policy):
    async def does(desk):
        await desk.ask("PATCH", "EventService", {"DeliveryRetryAttempts": 2,
                                                 "DeliveryRetryIntervalSeconds": 1})
        desk.service.webhooks.interval = 0.05
        async with Receiver(status=500) as receiver:
            made = await desk.ask("POST", SUBSCRIPTIONS, {
                "Destination": f"http://127.0.0.1:{receiver.port}/", "Protocol": "Redfish",
                "DeliveryRetryPolicy": policy, "ResourceTypes": ["ResourceBlock"]}, status=201)
            await desk.attach(H0, A)
            if policy == "TerminateAfterRetries":
                await eventually(lambda: desk.service.webhooks.all() == [])
                assert len(receiver.got) == 2
                return
            async def suspended():
                return (await desk.get(made["@odata.id"]))["Status"]["State"] == "Disabled"
            await eventually(suspended)
            assert len(receiver.got) == 2
            receiver.status = 204
            await desk.ask("POST", f"{made['@odata.id']}/Actions/"
                           "EventDestination.ResumeSubscription", status=204)
            await desk.attach(H0, B)
            await eventually(lambda: len(receiver.got) > 2)

    on_a_desk(tmp_path, does)


def test_a_subscriber_that_stalls_holds_nobody_up(tmp_path):
    async def does(desk):
        async with Receiver() as slow, Receiver() as quick:
            slow.stalls = True
            for receiver in (slow, quick):
                await desk.ask("POST", SUBSCRIPTIONS, {
                    "Destination": f"http://127.0.0.1:{receiver.port}/", "Protocol": "Redfish"},
                    status=201)
            await desk.attach(H0, A)
            await eventually(lambda: any("the host has it" in text for text in texts(quick.got)))
            assert slow.got == []
            slow.stalls = False
            await eventually(lambda: any("the host has it" in text for text in texts(slow.got)))

    on_a_desk(tmp_path, does)


class _Store:
    async def events(self, after):
        return
        yield


class _Pool:
    def __init__(self):
        self.listeners, self.store = [], _Store()

    def tell(self, number):
        for listener in self.listeners:
            listener(Event(number, 1.0, "setting/x", None, "a change"))


def test_a_reader_that_is_too_slow_is_dropped_and_told_so():
    """Others miss nothing."""
    async def does():
        pool = _Pool()
        hub = Hub(pool, backlog=10)
        slow, quick, got = hub.listen(), hub.listen(), []

        async def reads():
            while (notice := await quick.next()) is not None:
                got.append(notice.number)
        reading = asyncio.create_task(reads())
        for number in range(30):
            pool.tell(number)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert got == list(range(30))
        assert slow.lagged and hub.lagged == 1 and slow not in hub.listeners
        # What had room is still read; then the stream ends, so the reader asks for the rest.
        left = []
        while (notice := await slow.next()) is not None:
            left.append(notice.number)
        assert left == list(range(10))
        hub.close()
        await reading

    asyncio.run(does())


def test_a_thousand_streams_hold_nobody_up(tmp_path):
    """Each of them reads nothing; the manager goes on, and each ends with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"streams: a process may have {hard} open files here, not 4,096")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))

    async def does(desk):
        streams = []
        try:
            for _ in range(1000):
                reader, writer = await asyncio.open_unix_connection(str(desk.settings.unix))
                writer.write(f"GET {SSE} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                streams.append((reader, writer))
            for reader, _ in streams:
                assert b"200" in await reader.readuntil(b"\r\n")
            await eventually(lambda: len(desk.service.hub.listeners) == 1000)
            await desk.attach(H0, A)
            assert desk.cards(0x100) == {A}
            for reader, _ in streams[::100]:
                data = b""
                while b"the host has it" not in data:
                    data += await asyncio.wait_for(reader.read(65536), 10)
        finally:
            for _, writer in streams:
                writer.close()
        await eventually(lambda: not desk.service.hub.listeners)

    try:
        on_a_desk(tmp_path, does)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
