"""Metrics, health, and the log."""

import asyncio
import json
import logging

from prometheus_client.parser import text_string_to_metric_families

from dxpu_manager import StoreError
from dxpu_manager.service.metrics import METRICS
from dxpu_manager.service.program import JsonLines
from tests.support.service_bench import ROOT, eventually, on_a_desk

A, H0 = "00010000.1", "00000100"


async def samples(desk):
    """Values by name and labels."""
    answer = await desk.http.get("/metrics")
    assert answer.status_code == 200
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples}


def test_metrics_say_what_is_so(tmp_path):
    async def does(desk):
        before = await samples(desk)
        assert before["dxpu_gpus", (("state", "free"),)] == 4
        assert before["dxpu_free_ports", (("host", H0),)] == 4
        await desk.attach(H0, A)
        desk.nodes.do("unlink 10001 1")
        await eventually(lambda: desk.pool.node(0x10001).dead)
        await desk.http.get(f"{ROOT}/Nothing")
        after = await samples(desk)
        assert after["dxpu_gpus", (("state", "free"),)] == 3
        assert after["dxpu_gpus", (("state", "attached"),)] == 1
        assert after["dxpu_gpu_state", (("gpu", A), ("host", H0), ("state", "attached"))] == 1
        assert after["dxpu_free_ports", (("host", H0),)] == 3
        assert after["dxpu_tasks_total", (("end", "done"), ("job", "attach"))] == 1
        assert after["dxpu_http_requests_total", (("status", "404"),)] == 1
        assert after["dxpu_events_total", ()] == desk.pool.newest
        assert after["dxpu_epoch", ()] == 1
        for node, path, gpus, link in ((H0, 0, 1, 1), (H0, 1, 0, 1), ("00010000", 0, 1, 1),
                                       ("00010001", 0, 0, 1), ("00010001", 1, 0, 0)):
            labels = (("node", node), ("path", str(path)))
            assert (after["dxpu_path_gpus", labels], after["dxpu_path_link", labels]) == (
                gpus, link), labels
        names = {name for name, _ in after} | {"dxpu_tasks"}
        assert names == set(METRICS)

    on_a_desk(tmp_path, does, paths=2)


def test_a_node_that_does_not_answer_is_in_metrics_and_health(tmp_path):
    async def does(desk):
        desk.nodes.do("cut 10001")
        await eventually(lambda: 0x10001 in desk.service.manager.down, 30)
        now = await samples(desk)
        assert now["dxpu_nodes", (("answers", "no"), ("role", "box"))] == 1
        ready = await desk.http.get("/readyz")
        assert ready.status_code == 200
        assert "does not answer" in ready.json()["unreachable"]["00010001"]
        box = await desk.get("Chassis/00010001")
        assert box["Status"] == {"State": "UnavailableOffline", "Health": "Critical"}
        assert "does not answer" in box["Oem"]["DxPU"]["Trouble"]

    on_a_desk(tmp_path, does)


def test_a_store_that_cannot_be_written_is_said_everywhere(tmp_path):
    """Nothing new is begun, reads go on, and all is well again when it can be written."""
    async def does(desk):
        write = desk.pool.store.write

        async def full(events):
            raise StoreError("the store 'pool.db' cannot be used: database or disk is full")

        desk.pool.store.write = full
        desk.service.manager.spare(A)
        await eventually(lambda: desk.pool.trouble)
        ready = await desk.http.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["wrong"] == ["the store cannot be written: the store 'pool.db' cannot "
                                         "be used: database or disk is full"]
        answer = await desk.http.post(f"{ROOT}/Systems/{H0}/Actions/Oem/DxPU.Attach", json={
            "ResourceBlocks": [{"@odata.id": f"/{A}"}]})
        assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"
        assert "disk is full" in answer.json()["error"]["message"]
        assert (await samples(desk))["dxpu_store_trouble", ()] == 1
        assert (await desk.http.get("/healthz")).status_code == 200
        desk.pool.store.write = write
        await eventually(lambda: not desk.pool.trouble)
        assert (await desk.http.get("/readyz")).status_code == 200
        assert await desk.state(A) == "spare"

    on_a_desk(tmp_path, does)


def test_each_line_of_the_log_is_an_object():
    record = logging.LogRecord("dxpu_manager", logging.INFO, "x", 1, "GPU %s\nis \"new\"", ("a",),
                               None)
    record.fields = {"event": 7, "record": "gpu/a"}
    line = JsonLines().format(record)
    assert "\n" not in line
    said = json.loads(line)
    assert said.pop("time").endswith("Z")
    assert said == {"level": "info", "text": 'GPU a\nis "new"', "event": 7, "record": "gpu/a"}
    try:
        raise ValueError("why")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    assert "ValueError: why" in json.loads(JsonLines().format(record))["fault"]


def test_a_wish_is_durable_before_its_answer(tmp_path):
    """Who was told that a GPU is a spare finds it so after any crash."""
    async def does(desk):
        write, order = desk.pool.store.write, []

        async def slow(events):
            await asyncio.sleep(0.3)
            await write(events)
            order.append("written")

        desk.pool.store.write = slow
        answer = await desk.http.post(
            f"{ROOT}/CompositionService/ResourceBlocks/{A}/Actions/Oem/DxPU.Spare", json={})
        order.append(answer.status_code)
        assert order == ["written", 204]

    on_a_desk(tmp_path, does)
