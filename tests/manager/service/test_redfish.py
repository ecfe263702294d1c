"""The manager over Redfish: GPUs come and go, and every wrong request is one clear line."""

import asyncio
import json
from dataclasses import replace

import pytest

from dxpu_manager.service.redfish.table import table
from tests.support.service_bench import (
    BLOCKS, LIMITS, ROOT, Desk, block, eventually, on_a_desk,
)

H0, H1 = "00000100", "00000101"
A, B, C, D = "00010000.1", "00010000.2", "00010001.1", "00010001.2"


def said(body):
    """The key of an error's message, and its text."""
    return body["error"]["code"].rpartition(".")[2], body["error"]["message"]


def test_a_gpu_is_added_and_removed(tmp_path):
    """DSP2050: AddResourceBlock, and a task until it is there."""
    async def does(desk: Desk):
        actions = f"Systems/{H0}/Actions/ComputerSystem"
        answer = await desk.http.post(f"{ROOT}/{actions}.AddResourceBlock",
                                      json={"ResourceBlock": block(A)})
        assert answer.status_code == 202
        monitor = answer.headers["Location"]
        async def over():
            now = await desk.http.get(monitor)
            assert now.status_code in (202, 204)
            return now.status_code == 204
        await eventually(over)
        assert desk.cards(0x100) == {A}
        system = await desk.get(f"Systems/{H0}")
        assert system["Links"]["ResourceBlocks"] == [block(A)]
        shown = await desk.get(f"{BLOCKS}/{A}")
        assert (shown["Pool"], shown["CompositionStatus"]["CompositionState"]) == (
            "Active", "Composed")
        assert shown["Links"]["ComputerSystems"] == [{"@odata.id": f"{ROOT}/Systems/{H0}"}]
        zone = await desk.get(f"Fabrics/DxPU/Zones/{H0}")
        assert {"@odata.id": f"{ROOT}/Fabrics/DxPU/Endpoints/{A}"} in zone["Links"]["Endpoints"]
        gpus = await desk.get(f"Systems/{H0}/Processors")
        assert gpus["Members"] == [{"@odata.id": f"{ROOT}/Systems/{H0}/Processors/{A}"}]
        task = await desk.ask("POST", f"{actions}.RemoveResourceBlock",
                              {"ResourceBlock": block(A)}, status=202)
        assert (await desk.ended(task))["TaskState"] == "Completed"
        assert desk.cards(0x100) == set() and await desk.state(A) == "free"

    on_a_desk(tmp_path, does)


def test_a_zone_takes_and_gives_endpoints(tmp_path):
    async def does(desk: Desk):
        zone = f"Fabrics/DxPU/Zones/{H1}/Actions/Zone"
        end = {"Endpoint": {"@odata.id": f"{ROOT}/Fabrics/DxPU/Endpoints/{C}"}}
        await desk.ended(await desk.ask("POST", f"{zone}.AddEndpoint", end, status=202))
        assert desk.cards(0x101) == {C}
        port = await desk.get("Fabrics/DxPU/Switches/00010001/Ports/D0")
        assert port["LinkStatus"] == "LinkUp"
        wrong = await desk.ask("POST", f"Fabrics/DxPU/Zones/{H0}/Actions/Zone.RemoveEndpoint", end,
                               status=400)
        assert said(wrong)[1] == f"GPU {C} is not in the zone of {H0}"
        await desk.ended(await desk.ask("POST", f"{zone}.RemoveEndpoint", end, status=202))
        assert desk.cards(0x101) == set()

    on_a_desk(tmp_path, does)


def test_several_come_whole_or_not_at_all(tmp_path):
    async def does(desk: Desk):
        await desk.attach(H0, A, C)
        assert desk.cards(0x100) == {A, C}
        refused = await desk.ask("POST", f"Systems/{H1}/Actions/Oem/DxPU.Attach", {
            "ResourceBlocks": [block(B), block(A)]}, status=409)
        assert said(refused) == ("Conflict", f"GPU {A} is attached, not free or reserved or spare")
        assert await desk.state(B) == "free" and desk.cards(0x101) == set()
        task = await desk.ask("POST", f"Systems/{H0}/Actions/Oem/DxPU.Detach", {
            "ResourceBlocks": [block(A), block(C)], "Force": True}, status=202)
        await desk.ended(task)
        assert desk.cards(0x100) == set()

    on_a_desk(tmp_path, does)


def test_what_cohdi_sends_gives_and_takes_gpus(tmp_path):
    """The whole body that the Sunfish client of CoHDI's operator sends, to its one address; it
    takes 200 and 204 for done."""
    def body(name, count):
        return {"Name": name, "Processors": {"Members": [{
            "@Redfish.RequestCount": count, "ProcessorType": "GPU",
            "Model": "NVIDIA-A100-PCIE-40GB"}]}}

    async def does(desk: Desk):
        for gpu in (A, C):
            await desk.ask("PATCH", f"{BLOCKS}/{gpu}",
                           {"Oem": {"DxPU": {"Model": "NVIDIA-A100-PCIE-40GB"}}})
        await desk.ask("PATCH", f"Systems/{H1}", {"Oem": {"DxPU": {"Label": "worker-1"}}})
        done = await desk.ask("PATCH", "Systems/System", body("worker-1", 2))
        assert done["Id"] == H1
        assert desk.cards(0x101) == {A, C}
        await desk.ask("PATCH", "Systems/System", body("worker-1", 2))
        assert desk.cards(0x101) == {A, C}
        refused = await desk.ask("PATCH", "Systems/System", body("worker-1", 3), status=409)
        assert "there are 0 free GPUs of model NVIDIA-A100-PCIE-40GB" in said(refused)[1]
        assert (await desk.get("CompositionService/Oem/DxPU/Requests/2"))["Phase"] == "ended"
        await desk.ask("PATCH", "Systems/System", body("worker-1", 0))
        assert desk.cards(0x101) == set()
        unknown = await desk.ask("PATCH", "Systems/System", body("worker-9", 1), status=404)
        assert said(unknown) == ("NotFound", "there is no host worker-9")

    on_a_desk(tmp_path, does)


def test_a_request_waits_and_says_why_then_its_lease_ends(tmp_path):
    async def does(desk: Desk):
        requests = "CompositionService/Oem/DxPU/Requests"
        first = await desk.ask("POST", requests, {"Host": H0, "Count": 4, "LeaseSeconds": 2},
                               status=201)
        await eventually(lambda: len(desk.cards(0x100)) == 4)
        second = await desk.ask("POST", requests, {"Host": H1, "Count": 1, "Keep": True},
                                status=201)
        shown = await desk.get(second["@odata.id"])
        assert shown["Phase"] == "waiting"
        assert shown["Explanation"].startswith(
            "1 GPU: there are 0 free GPUs; could start in ")
        async def kept():
            return (await desk.get(second["@odata.id"]))["Phase"] == "reserved"
        await eventually(kept)
        assert (await desk.get(first["@odata.id"]))["Phase"] in ("ending", "ended")
        held = await desk.get("CompositionService/CompositionReservations")
        assert held["Members"] == [
            {"@odata.id": f"{ROOT}/CompositionService/CompositionReservations/2"}]
        await desk.ask("POST", f"{requests}/2/Actions/DxPURequest.TakeUp", status=202)
        async def held_by_the_host():
            return (await desk.get(second["@odata.id"]))["Phase"] == "holding"
        await eventually(held_by_the_host)
        assert len(desk.cards(0x101)) == 1
        await desk.ask("PATCH", f"{requests}/2", {"LeaseSeconds": 3600})
        assert (await desk.get(f"{requests}/2"))["Until"] is not None
        await desk.ask("DELETE", f"{requests}/2", status=204)
        await eventually(lambda: not desk.cards(0x101))

    on_a_desk(tmp_path, does)


def test_a_manifest_is_previewed_kept_and_applied(tmp_path):
    """DSP0268, Compose: RequestFormat Manifest."""
    def compose(kind, **more):
        return {"RequestFormat": "Manifest", "RequestType": kind, "Manifest": {"Stanzas": [
            {"StanzaType": "ComposeResource", "StanzaId": "1",
             "Request": {"Host": H0, "Count": 2, "Where": "box"}}]}, **more}

    async def does(desk: Desk):
        action = "CompositionService/Actions/CompositionService.Compose"
        seen = await desk.ask("POST", action, compose("Preview"))
        links = seen["Manifest"]["Stanzas"][0]["Response"]["Links"]["ResourceBlocks"]
        assert links == [block(A), block(B)]
        assert await desk.state(A) == "free"
        kept = await desk.ask("POST", action, compose("PreviewReserve"))
        assert await desk.state(A) == "reserved"
        await desk.ask("POST", action, {"RequestFormat": "Manifest", "RequestType": "Apply",
                                        "ReservationId": kept["ReservationId"]}, status=202)
        await eventually(lambda: desk.cards(0x100) == {A, B})
        await desk.ask("POST", action, compose("Apply"), status=202)
        await eventually(lambda: desk.cards(0x100) == {A, B, C, D})
        full = await desk.ask("POST", action, compose("Preview"), status=409)
        assert said(full) == ("Conflict", "host 00000100 has 0 free ports")

    on_a_desk(tmp_path, does)


def test_a_task_is_cancelled_and_one_fails(tmp_path):
    async def does(desk: Desk):
        desk.nodes.do("cut 10000")
        task = await desk.ask("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach",
                              {"ResourceBlocks": [block(A)]}, status=202)
        await desk.ask("DELETE", f"TaskService/Tasks/{task['Id']}", status=204)
        async def stopping():
            return (await desk.get(f"TaskService/Tasks/{task['Id']}"))["TaskState"] == "Stopping"
        await eventually(stopping)
        desk.nodes.do("join 10000")
        assert (await desk.ended(task))["TaskState"] == "Cancelled"
        assert desk.cards(0x100) == set() and await desk.state(A) == "free"
        desk.nodes.do("break 10001 1")
        task = await desk.ask("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach",
                              {"ResourceBlocks": [block(C)]}, status=202)
        assert (await desk.ended(task))["TaskState"] == "Exception"
        failed = await desk.ask("GET", f"TaskService/TaskMonitors/{task['Id']}", status=409)
        assert said(failed) == ("TaskFailed", f"GPU {C}: its link does not come up")
        assert await desk.state(C) == "failed"
        health = (await desk.get(f"{BLOCKS}/{C}"))["Status"]
        assert health == {"State": "Disabled", "Health": "Critical"}

    on_a_desk(tmp_path, does)


def test_an_operator_looks_after_gpus(tmp_path):
    async def does(desk: Desk):
        async def act(name, gpu=A, status=204, **body):
            return await desk.ask("POST", f"{BLOCKS}/{gpu}/Actions/Oem/DxPU.{name}", body,
                                  status=status)
        await act("Spare")
        assert await desk.state(A) == "spare"
        assert said(await act("Spare", status=409))[1] == f"GPU {A} is spare, not free"
        await act("Unspare")
        await act("SetAside")
        assert await desk.state(A) == "quarantined"
        await act("Admit")
        assert await desk.state(A) == "free"
        await desk.attach(H0, B)
        await desk.ended(await act("GiveUp", B, status=202, Reason="smoke"))
        shown = await desk.get(f"{BLOCKS}/{B}")
        assert (shown["Oem"]["DxPU"]["State"], shown["Oem"]["DxPU"]["Broken"]) == (
            "failed", "smoke")
        await act("Retire", B)
        assert said(await act("Explode", status=404))[1] == "there is no action DxPU.Explode"
        await desk.ask("PATCH", "Chassis/00010001", {"Oem": {"DxPU": {
            "Kind": "joined", "Label": "rack-7", "Closed": True}}})
        box = await desk.get("Chassis/00010001")
        assert (box["Name"], box["Oem"]["DxPU"]["Kind"], box["Status"]["State"]) == (
            "rack-7", "joined", "Quiesced")
        refused = await desk.ask("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach",
                                 {"ResourceBlocks": [block(C)]}, status=409)
        assert said(refused)[1] == "box 00010001 is closed: open it first"
        taken = await desk.ask("PATCH", f"Systems/{H0}", {"Oem": {"DxPU": {"Label": "rack-7"}}},
                               status=409)
        assert said(taken)[1] == "node 00010001 is called rack-7 already"

    on_a_desk(tmp_path, does)


#: Method, address, body or its bytes, heads; status, key, and text of the answer.
_WRONG = [
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", b"{", {}, 400, "MalformedJSON",
     "the body is not JSON"),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", b"[1]", {}, 400, "UnrecognizedRequestBody",
     "the body must be a JSON object"),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", b"[" * 100_000, {}, 400, "MalformedJSON",
     "the body is not JSON"),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", b" " * (1 << 20) + b"{}", {}, 413,
     "UnrecognizedRequestBody", "the body has more than 1048576 bytes"),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", b"<a/>", {"Content-Type": "text/xml"}, 415,
     "UnrecognizedRequestBody", "send application/json, not text/xml"),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach",
     b'{"ResourceBlocks": [], "ResourceBlocks": []}', {}, 400, "PropertyDuplicate",
     "ResourceBlocks is there twice"),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", {}, {}, 400, "ActionParameterMissing",
     "ResourceBlocks is missing"),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", {"ResourceBlocks": []}, {}, 400,
     "Impossible", "name one GPU at least, and each once"),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", {"ResourceBlocks": "all"}, {}, 400,
     "PropertyValueTypeError", "ResourceBlocks must be an array, not all"),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", {"ResourceBlocks": ["x"]}, {}, 400,
     "PropertyValueError", "there is no resource block "),
    ("POST", f"Systems/{H0}/Actions/Oem/DxPU.Attach", {"ResourceBlocks": [], "Now": 1}, {}, 400,
     "ActionParameterUnknown", "there is no parameter Now"),
    ("PATCH", f"Systems/{H0}", {"SerialNumber": "1"}, {}, 400, "PropertyNotWritable",
     "SerialNumber cannot be written"),
    ("PATCH", f"Systems/{H0}", {"Colour": "red"}, {}, 400, "PropertyUnknown",
     "there is no property Colour"),
    ("PATCH", f"Systems/{H0}", {}, {}, 400, "NoOperation",
     "nothing that can be written was given"),
    ("PATCH", f"Systems/{H0}", {"Oem": {"DxPU": {"Closed": "yes"}}}, {}, 400,
     "PropertyValueTypeError", "Oem.DxPU.Closed must be true or false, not yes"),
    ("PATCH", f"Systems/{H0}", {"Processors": {"Members": [{"@Redfish.RequestCount": -1}]}}, {},
     400, "PropertyValueError", "@Redfish.RequestCount is a number of GPUs, from 0 to 256"),
    ("PATCH", "Chassis/00010000", {"Oem": {"DxPU": {"Kind": "big"}}}, {}, 400,
     "PropertyValueNotInList", "Oem.DxPU.Kind must be one of joined, switch, not big"),
    ("PATCH", f"Systems/{H0}", {"Oem": {"DxPU": {"Label": "a"}}}, {"If-Match": '"old"'}, 412,
     "PreconditionFailed", f"/redfish/v1/Systems/{H0} has changed: read it again, and decide anew"),
    ("PUT", f"Systems/{H0}", {}, {}, 405, "OperationNotAllowed",
     f"PUT cannot be done at /redfish/v1/Systems/{H0}"),
    ("GET", "Systems/00000999", None, {}, 404, "ResourceMissingAtURI",
     "there is no host 00000999"),
    ("GET", "Sistems", None, {}, 404, "ResourceMissingAtURI",
     "there is nothing at /redfish/v1/Sistems"),
    ("GET", "Systems", None, {"OData-Version": "5.0"}, 412, "HeaderInvalid",
     "the header OData-Version must be 4.0"),
    ("GET", "Systems?$filter=a", None, {}, 501, "QueryNotSupported",
     "the query parameter $filter is not supported"),
    ("GET", "Systems?$expand=x", None, {}, 400, "QueryParameterValueFormatError",
     "the value 'x' of $expand cannot be read"),
    ("GET", "Systems?$expand=.($levels=9)", None, {}, 400, "QueryParameterOutOfRange",
     "$levels is 1 to 3, not 9"),
    ("GET", f"Systems/{H0}?$top=1", None, {}, 400, "QueryNotSupportedOnResource",
     "the query parameter $top is for collections"),
    ("POST", "CompositionService/Oem/DxPU/Requests", {"Host": H0, "Count": 0}, {}, 400,
     "PropertyValueError", "Count must be 1 at least, not 0"),
    ("POST", "CompositionService/Oem/DxPU/Requests", {"Host": H0, "Count": 9}, {}, 400,
     "Impossible", "host 00000100 has 4 ports, and 9 are needed"),
    ("POST", "CompositionService/Oem/DxPU/Requests", {"Host": "none"}, {}, 404, "NotFound",
     "there is no host none"),
    ("POST", "CompositionService/Oem/DxPU/Requests", {"Host": H0, "LeaseSeconds": -1}, {}, 400,
     "Impossible", "a lease is for a time above 0 s, not -1"),
    ("POST", "EventService/Subscriptions", {"Destination": "mailto:me", "Protocol": "Redfish"},
     {}, 400, "Impossible",
     "the destination 'mailto:me' is no address that begins with http:// or https://"),
    ("DELETE", "TaskService/Tasks/77", None, {}, 404, "ResourceMissingAtURI",
     "there is no task 77"),
]


def test_every_wrong_request_is_one_line(tmp_path):
    async def does(desk: Desk):
        for method, path, body, heads, status, key, text in _WRONG:
            content = body if isinstance(body, bytes) else (
                None if body is None else json.dumps(body).encode())
            heads = {"Content-Type": "application/json", **heads} if content else heads
            answer = await desk.http.request(method, f"{ROOT}/{path}", content=content,
                                             headers=heads)
            assert (answer.status_code, *said(answer.json())) == (status, key, text), path
            assert "\n" not in text
        methods = await desk.http.put(f"{ROOT}/Systems/{H0}", json={})
        assert methods.headers["Allow"] == "GET, HEAD, PATCH"
        assert await desk.state(A) == "free" and not list(desk.pool.all(_task()))

    on_a_desk(tmp_path, does)


def _task():
    from dxpu_manager import Task
    return Task


def test_what_a_query_wants_of_a_collection(tmp_path):
    """DSP0266, 7.3: $top, $skip, $expand, $select, only."""
    async def does(desk: Desk):
        first = await desk.get("Systems?$top=1")
        assert [one["@odata.id"] for one in first["Members"]] == [f"{ROOT}/Systems/{H0}"]
        assert first["Members@odata.count"] == 2
        second = await desk.get(first["Members@odata.nextLink"])
        assert [one["@odata.id"] for one in second["Members"]] == [f"{ROOT}/Systems/{H1}"]
        assert "Members@odata.nextLink" not in second
        whole = await desk.get(f"{BLOCKS}?$expand=.&$select=Id,Status/Health")
        assert whole["Members"][0] == {
            "@odata.id": f"{BLOCKS}/{A}", "@odata.type": whole["Members"][0]["@odata.type"],
            "@odata.etag": whole["Members"][0]["@odata.etag"], "Id": A,
            "Status": {"Health": "OK"}}
        only = await desk.get("Fabrics?only")
        assert only["Id"] == "DxPU"
        deep = await desk.get("Fabrics?$expand=*($levels=3)")
        switch = deep["Members"][0]["Switches"]["Members"][0]
        assert switch["Name"] == f"host proxy {H0}"

    on_a_desk(tmp_path, does)


def test_a_resource_that_has_changed_has_another_tag(tmp_path):
    async def does(desk: Desk):
        before = await desk.http.get(f"{BLOCKS}/{A}")
        tag = before.headers["ETag"]
        same = await desk.http.get(f"{BLOCKS}/{A}", headers={"If-None-Match": tag})
        assert same.status_code == 304 and not same.content
        change = {"Oem": {"DxPU": {"Model": "V100"}}}
        done = await desk.http.patch(f"{BLOCKS}/{A}", json=change, headers={"If-Match": tag})
        assert done.status_code == 200 and done.headers["ETag"] != tag
        late = await desk.http.patch(f"{BLOCKS}/{A}", json=change, headers={"If-Match": tag})
        assert late.status_code == 412

    on_a_desk(tmp_path, does)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS",
                                    "TRACE"])
def test_nothing_that_is_sent_anywhere_is_a_fault_of_the_manager(tmp_path, method):
    """All addresses, with names that are there and names that are not, and all kinds of bodies:
    no answer is 500, and none is late."""
    values = [None, 0, -1, 1e308, "", "x", "../..", "\u0000", True, [], [None], {}, {"a": []},
              {"@odata.id": 5}, [{"@odata.id": "/"}], "9" * 400]
    names = ["ResourceBlock", "ResourceBlocks", "Endpoint", "Host", "Count", "Model", "Manifest",
             "RequestFormat", "RequestType", "Destination", "Protocol", "HttpHeaders", "UserName",
             "Password", "RoleId", "Processors", "Oem", "LeaseSeconds", "SessionTimeout", "Reason",
             "Force", "DeliveryRetryAttempts", "Enabled", "ReservationId"]

    async def does(desk: Desk):
        count = 0
        for template, _ in table.paths():
            if template.endswith("/SSE"):
                continue
            for filled in (A, H0, "00010000", "1", "DxPU.Spare", "no\u00e9"):
                path = template
                while "{" in path:
                    left, _, rest = path.partition("{")
                    path = left + filled + rest.partition("}")[2]
                for n in range(3 if method in ("POST", "PATCH") else 1):
                    body = {name: values[(7 * count + 3 * k + n) % len(values)]
                            for k, name in enumerate(names) if (count + k + n) % 3}
                    answer = await desk.http.request(
                        method, path, json=body if method in ("POST", "PATCH") else None)
                    assert answer.status_code < 500 or answer.status_code == 501, (
                        method, path, body, answer.text)
                    count += 1
                if "{" not in template:
                    break
        assert await desk.get("Systems")

    on_a_desk(tmp_path, does)


def test_what_a_node_tells_is_seen_at_once(tmp_path):
    """A card is pulled, put in, and lost by its host; nobody looks at all nodes for a minute."""
    async def does(desk: Desk):
        await desk.attach(H0, C)
        desk.nodes.do("pull 10000 1")
        async def absent():
            return await desk.state(A) == "absent"
        await eventually(absent)
        desk.nodes.do("insert 10000 1")
        async def free():
            return await desk.state(A) == "free"
        await eventually(free)
        # The session is lost for a moment: the host has lost the card, and gets it back.
        pair = frozenset((desk.nodes.node(0x100).mac, desk.nodes.node(0x10001).mac))
        desk.nodes.fabric.cut.add(pair)
        desk.nodes.fabric.settle()
        assert desk.cards(0x100) == set()
        desk.nodes.fabric.cut.clear()
        desk.nodes.fabric.settle()
        await eventually(lambda: desk.cards(0x100) == {C})

    on_a_desk(tmp_path, does, limits=replace(LIMITS, look=60.0))


def test_who_reads_while_gpus_come_and_go_sees_no_contradiction(tmp_path):
    """A GPU with a host is attached, attaching or draining; one without is none of these."""
    async def does(desk: Desk):
        async def reads():
            while True:
                whole = await desk.get(f"{BLOCKS}?$expand=.")
                for one in whole["Members"]:
                    own = one["Oem"]["DxPU"]
                    assert (own["Host"] is not None) == (
                        own["State"] in ("attaching", "attached", "draining")), own
        reading = asyncio.create_task(reads())
        for _ in range(3):
            await desk.attach(H0, A, B)
            task = await desk.ask("POST", f"Systems/{H0}/Actions/Oem/DxPU.Detach",
                                  {"ResourceBlocks": [block(A), block(B)]}, status=202)
            await desk.ended(task)
        assert not reading.done(), reading.exception()
        reading.cancel()

    on_a_desk(tmp_path, does)
