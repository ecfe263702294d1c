"""dxpu_manager.etcd before an etcd that restarts, loses members, is full, or asks for certificates.
"""

import asyncio
import datetime
import ipaddress
import re

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dxpu_cli.bench.etcd_members import PATIENCE, Cluster
from dxpu_manager import Deposed, Node, Pool, Role, StoreError
from tests.manager.test_store import events, said
from tests.support.etcd_bench import need_etcd

pytest.importorskip("aetcd", reason="manager: no aetcd (the extra `manager`)")

from aetcd import rpc

from dxpu_manager.etcd import Etcd, EtcdStore, Tls, store as layout


@pytest.fixture(autouse=True)
def etcd():
    need_etcd()


def test_a_manager_that_waits_outlives_a_restart_of_etcd(tmp_path):
    async def whole():
        with Cluster(tmp_path) as cluster:
            first = await EtcdStore.lead(Etcd(cluster.endpoints), "first", ttl=60)
            waits = asyncio.create_task(EtcdStore.lead(Etcd(cluster.endpoints), "second", ttl=2))
            await asyncio.sleep(0.5)
            cluster.kill()
            writes = asyncio.create_task(first.write(events("a")))
            await asyncio.sleep(0.5)
            cluster.start()
            await writes
            assert not waits.done() and first.leads()
            await first.close()
            second = await waits
            assert await second.load() == ({"node/1": "a"}, 1)
            await second.close()

    asyncio.run(whole())


def test_members_are_lost(tmp_path):
    """Of three one may go, whichever; without two of them the leader stops, and says so; when they
    are back another one leads and has all that was written."""
    async def whole():
        with Cluster(tmp_path, 3) as cluster:
            store, number = await EtcdStore.lead(Etcd(cluster.endpoints), ttl=12), 0
            for lost in range(3):
                cluster.kill(lost)
                for _ in range(20):
                    number += 1
                    await store.write(events(f"text {number}", first=number))
                cluster.start(lost)
                await asyncio.to_thread(cluster.wait, lost)
            await store.close()
            store = await EtcdStore.lead(Etcd(cluster.endpoints), ttl=3)
            assert await said(store) == events(*(f"text {n}" for n in range(1, number + 1)))
            cluster.kill(0, 1)
            assert (await store.lost()).startswith("the lease of this manager may have run out")
            with pytest.raises(Deposed):
                await store.write(events("x", first=number + 1))
            with pytest.raises(StoreError, match="^etcd at 127.0.0.1:[0-9]+ has no quorum: start "
                                                 "more of its members$"):
                await EtcdStore.lead(Etcd(f"127.0.0.1:{cluster.ports[2]}"))
            await store.close()
            cluster.start(0, 1)
            cluster.wait()
            store = await EtcdStore.lead(Etcd(cluster.endpoints))
            assert (await store.load())[1] == number
            await store.close()

    asyncio.run(whole())


def test_an_etcd_that_is_full(tmp_path, monkeypatch):
    """Nothing new is begun while it is full; what was begun is written when there is room."""
    async def whole():
        monkeypatch.setattr("dxpu_manager.pool.AGAIN", 0.1)
        with Cluster(tmp_path, 1, "--quota-backend-bytes", "2000000") as cluster:
            store = await EtcdStore.lead(Etcd(cluster.endpoints), ttl=60)
            pool = await Pool.of(store, lambda: 5.0, since_boot=lambda: 1.0)
            written = 0
            while not pool.trouble:
                with pool.change() as change:
                    change.put(Node(1, Role.HOST, "0" * 12, 1, 8, label="x" * 100_000), "a node")
                written += 1
                await asyncio.wait({asyncio.ensure_future(pool.durable())}, timeout=1)
            assert re.fullmatch(r"etcd at 127.0.0.1:[0-9]+ refuses: mvcc: database space exceeded",
                                pool.trouble)
            with pytest.raises(StoreError, match="space exceeded"), pool.change():
                pytest.fail("a change begins")
            newest = (await store.load())[1]
            # With a reading of the clocks; etcd may have done the write that makes it full.
            assert newest - written in (0, 1) and store.leads()
            # What an operator does: old events go, and then the alarm.
            with store._etcd._member() as channel:
                await rpc.KVStub(channel).DeleteRange(rpc.DeleteRangeRequest(
                    key=b"/dxpu/store/00000001/event/",
                    range_end=b"/dxpu/store/00000001/event0"))
            with store._etcd._member() as channel:
                answer = await rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"x"))
                await rpc.KVStub(channel).Compact(rpc.CompactionRequest(
                    revision=answer.header.revision, physical=True))
                await rpc.MaintenanceStub(channel).Defragment(rpc.DefragmentRequest())
                await rpc.MaintenanceStub(channel).Alarm(rpc.AlarmRequest(
                    action=rpc.AlarmRequest.DEACTIVATE, alarm=rpc.AlarmType.NOSPACE,
                    memberID=answer.header.member_id))
            await asyncio.wait_for(pool.durable(), PATIENCE)
            assert not pool.trouble and (await store.load())[1] == written + 1
            await store.close()

    asyncio.run(whole())


def certificates(folder):
    """An authority, and certificates of a member and of a manager, in files."""
    now, one = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    for name in ("authority", "member", "manager"):
        key = authority if name == "authority" else ec.generate_private_key(ec.SECP256R1())
        made = (x509.CertificateBuilder().issuer_name(issuer)
                .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
                .public_key(key.public_key()).serial_number(x509.random_serial_number())
                .not_valid_before(now - one).not_valid_after(now + one)
                .add_extension(x509.BasicConstraints(name == "authority", None), critical=True)
                .add_extension(x509.SubjectAlternativeName(
                    [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
                .sign(authority, hashes.SHA256()))
        (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()))


def test_certificates(tmp_path, monkeypatch):
    """Who has none reads no key of a pair, and gets a line."""
    certificates(tmp_path)
    ca, ours, key = (tmp_path / name for name in ("authority.pem", "manager.pem", "manager.key"))

    async def whole(cluster):
        store = await EtcdStore.lead(Etcd(cluster.endpoints, tls=Tls(ca, ours, key)))
        await store.write(events("a"))
        await store.close()
        store = await EtcdStore.lead(Etcd(cluster.endpoints, tls=Tls(ca, ours, key)))
        assert await store.load() == ({"node/1": "a"}, 1)
        await store.close()
        monkeypatch.setattr(layout, "PATIENCE", 0.5)
        other = tmp_path / "other"
        other.mkdir()
        certificates(other)
        for tls in (None, Tls(ca), Tls(other / "authority.pem", ours, key),
                    Tls(ca, other / "manager.pem", other / "manager.key")):
            with pytest.raises(StoreError, match="^no etcd answers at [^\n]*$"):
                await EtcdStore.lead(Etcd(cluster.endpoints, tls=tls))
        with pytest.raises(StoreError, match="^no certificates for etcd: .*none.pem: No such file "
                                             "or directory$"):
            Etcd(cluster.endpoints, tls=Tls(tmp_path / "none.pem"))

    with Cluster(tmp_path, 1, "--cert-file", tmp_path / "member.pem",
                 "--key-file", tmp_path / "member.key", "--trusted-ca-file", ca,
                 "--client-cert-auth", scheme="https") as cluster:
        asyncio.run(whole(cluster))
