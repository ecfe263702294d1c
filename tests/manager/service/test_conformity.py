"""DMTF's own verdict: service, protocol and use-case validators, on a manager as a process.

The service validator needs the schema files of DMTF (DSP8010), which are not part of this project:
a folder or archive with them is where ``DXPU_REDFISH_SCHEMAS`` says.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import httpx
import pytest

from tests.support.certificate import make_certificate
from tests.support.manager_process import DXPU, free_port, processes, wait_for

USER, PASSWORD = "root", "right password"
SCRIPTS = Path(sysconfig.get_path("scripts"))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Address of a manager with TLS, accounts, GPUs in use, and a request that waits."""
    folder = tmp_path_factory.mktemp("service")
    certificate, _ = make_certificate(folder)
    port = free_port()
    with processes(folder, f"127.0.0.1:{port}",
                   'certificate = "cert.pem"\nkey = "key.pem"') as (_, manager):
        subprocess.run([*DXPU, "manager", "account", str(manager.settings), USER, "--role",
                        "Administrator"], input=f"{PASSWORD}\n", text=True, check=True,
                       stdout=subprocess.DEVNULL)
        manager.start()
        with httpx.Client(base_url=f"https://localhost:{port}/redfish/v1", verify=str(certificate),
                          auth=(USER, PASSWORD), timeout=30, trust_env=False) as http:
            requests = "CompositionService/Oem/DxPU/Requests"
            wait_for(lambda: http.get("CompositionService/FreePool").json()[
                "Members@odata.count"] == 8)
            for body in ({"Host": "00000100", "Count": 2, "LeaseSeconds": 3600},
                         {"Host": "00000101", "Count": 2, "Keep": True},
                         {"Host": "00000102", "Count": 7, "Model": "V100"}):
                assert http.post(requests, json=body).status_code == 201
            http.post("EventService/Subscriptions", json={
                "Destination": f"http://127.0.0.1:{free_port()}/", "Protocol": "Redfish"})
            wait_for(lambda: http.get(f"{requests}/1").json()["Phase"] == "holding")
        yield f"https://localhost:{port}", certificate, folder


def validate(service, name, *options):
    """What a validator prints, without colours."""
    address, certificate, folder = service
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name), "--user", USER, "--password", PASSWORD, "--rhost",
         address, *options], cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, "REQUESTS_CA_BUNDLE": str(certificate), "NO_PROXY": "localhost",
             "no_proxy": "localhost"})
    return done.stdout + done.stderr


def counts(printed):
    """Passed, warned and failed checks in the last table."""
    row = re.findall(r"\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+\d+\s+\|", printed)
    assert row, printed[-2000:]
    return tuple(map(int, row[-1]))


def test_the_protocol_is_right(service):
    printed = validate(service, "rf_protocol_validator", "--ca-bundle", str(service[1]),
                       "--avoid-http-redirect", "--report-type", "tsv", "--report-dir", "protocol")
    match = re.search(r"PASS: (\d+), WARN: (\d+), FAIL: (\d+)", printed)
    assert match, printed[-2000:]
    passed, warned, failed = map(int, match.groups())
    assert (failed, warned) == (0, 0) and passed >= 350, printed[-2000:]


def test_the_use_cases_are_right(service):
    printed = validate(service, "rf_use_case_checkers", "--report-dir", "cases")
    passed, warned, failed = counts(printed)
    assert (failed, warned) == (0, 0) and passed >= 30, printed[-2000:]


def test_every_resource_is_as_its_schema_says(service, tmp_path):
    """An empty folder of schemas gives nothing failed either, so what passed is counted."""
    given = os.environ.get("DXPU_REDFISH_SCHEMAS")
    if not given:
        pytest.skip("Redfish: no schema files of DMTF for the service validator; "
                    "DXPU_REDFISH_SCHEMAS names a folder or archive of them (DSP8010, CSDL)")
    schemas = tmp_path / "schemas"
    if Path(given).is_dir():
        shutil.copytree(given, schemas)
    else:
        schemas.mkdir()
        with tarfile.open(given) as archive:
            archive.extractall(schemas, filter="data")
    from dxpu_manager.service.redfish.schemas import OWN_SCHEMAS
    folder = next(schemas.rglob("ServiceRoot_v1.xml")).parent
    for name, text in OWN_SCHEMAS.items():
        (folder / f"{name}_v1.xml").write_text(text)
    printed = validate(service, "rf_service_validator", "--skipschema", "--schema_directory",
                       str(folder), "--logdir", "schema")
    passed, warned, failed = counts(printed)
    assert failed == 0 and passed >= 1200, re.findall(".*FAIL.*", printed)
    # Slots of a chassis are an old schema; nothing else may be.
    assert warned <= 2, printed[-2000:]
