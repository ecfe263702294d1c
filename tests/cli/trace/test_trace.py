"""``dxpu trace``: the ways of TLPs through captures, and what is printed of them."""

import json
import re

import pytest
from dxpu_cli import main as cli
from dxpu_cli.trace.journeys import journeys
from dxpu_cli.trace.sights import sights
from dxpu_model.tlp import Tlp
from dxpu_model.wire import Ack, Credit, Frame, Tlps, build, split
from dxpu_sim.ethernet.pcap import TLP, PcapWriter

HOST = {"src_node": 1, "dst_node": 0x101, "dst_slot": 1, "tag": 0x1234}
BOX = {"src_node": 0x101, "dst_node": 1, "src_slot": 1, "tag": 0x5678}


def read(tag=3, address=0xF0000060):
    return Tlp(0, 0, length=1, first_be=15, address=address, tag=tag, requester_id=0x100).pack()


def answer(tag=3):
    return Tlp(2, 10, length=1, payload=b"abcd", tag=tag, requester_id=0x100,
               completer_id=0x208).pack()


def config(type, tag=9):
    return Tlp(0, type, length=1, first_be=15, tag=tag, target_id=0x500, register=1).pack()


def write(data=b"data"):
    return Tlp(2, 0, length=1, first_be=15, address=0x1000, payload=data).pack()


class File:
    """A capture: TLPs at the ports ``host`` and ``gpu0``, frames on ``host path`` and ``box
    path``; a packet every 100 ns."""

    def __init__(self, path):
        self.path, self._writer, self._time = path, PcapWriter(path, fcs=False), 0
        self._ports = {name: self._writer.interface(name, TLP) for name in ("host", "gpu0")}
        self._lines = {name: self._writer.interface(name) for name in ("host path", "box path")}

    def tlp(self, port, raw, inbound):
        self._time += 100
        self._writer.write(self._ports[port], self._time, raw, inbound=inbound)

    def frame(self, raws, seq, back=False, comment="", **fields):
        self._time += 100
        body = raws if not isinstance(raws, list) else Tlps(tuple(raws))
        self._writer.write(self._lines["box path" if back else "host path"], self._time,
                           build(Frame(body, seq=seq, **{**(BOX if back else HOST), **fields})),
                           comment)

    def close(self):
        self._writer.close()
        return journeys(sights(self.path))


@pytest.fixture
def file(tmp_path):
    return File(tmp_path / "x.pcapng")


def packets(journey):
    return [sight.packet for sight in journey.sights]


def test_a_read_and_its_completion(file):
    file.tlp("host", read(), True)
    file.frame([read()], 0)
    file.frame(Ack((Credit(0), Credit(1), Credit(2))), 0, back=True)
    file.tlp("gpu0", read(), False)
    file.tlp("gpu0", answer(), True)
    file.frame([answer()], 0, back=True)
    file.tlp("host", answer(), False)
    one, = file.close()
    assert packets(one) == [1, 2, 4, 5, 6, 7] and one.text == "MRd 4 B @0xf000_0060 tag 3"
    assert [(s.place, s.way) for s in one.sights] == [
        ("host", "in"), ("host path", ""), ("gpu0", "out"), ("gpu0", "in"), ("box path", ""),
        ("host", "out")]


def test_a_tag_that_is_used_again_is_another_request(file):
    for seq in (0, 1):
        file.tlp("host", read(), True)
        file.frame([read()], seq)
        file.frame([answer()], seq, back=True)
    assert [packets(journey) for journey in file.close()] == [[1, 2, 3], [4, 5, 6]]


def test_a_frame_that_is_sent_again_is_the_same_request(file):
    file.tlp("host", read(), True)
    file.frame([read(), read(4)], 0, comment="lost")
    file.frame([read(), read(4)], 0)
    file.frame([answer()], 0, back=True)
    file.frame([answer()], 0, back=True)
    first, other = file.close()
    assert packets(first) == [1, 2, 3, 4, 5] and packets(other) == [2, 3]
    assert [sight.again for sight in first.sights] == [False, False, True, False, True]
    assert first.sights[1].comment == "lost"


def test_type_1_becomes_type_0_on_its_way(file):
    file.tlp("host", config(5), True)
    file.frame([config(4)], 0)
    file.tlp("gpu0", config(4), False)
    one, = file.close()
    assert packets(one) == [1, 2, 3]


def test_posted_tlps_that_are_alike_go_in_order(file):
    for _ in range(2):
        file.tlp("host", write(), True)
    file.tlp("host", write(b"else"), True)
    file.frame([write(), write(), write(b"else")], 0)
    for raw in (write(), write(), write(b"else")):
        file.tlp("gpu0", raw, False)
    assert [packets(journey) for journey in file.close()] == [[1, 4, 5], [2, 4, 6], [3, 4, 7]]


def test_a_tlp_in_the_split_form_is_seen_with_its_last_part(file):
    raw = write()
    for seq, body in enumerate(split(raw, 64)):
        file.frame(body, seq)
    one, = file.close()
    assert packets(one) == [2] and one.first.raw == raw


def test_what_a_receiver_drops_carries_nothing(file, tmp_path):
    file.frame([read()], 0)
    assert len(file.close()) == 1
    data = file.path.read_bytes()
    at = data.index(b"\x88\xb5") + 20
    (tmp_path / "y.pcapng").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    assert journeys(sights(tmp_path / "y.pcapng")) == []


def test_what_is_printed(file, capsys):
    file.tlp("host", read(), True)
    file.frame([read()], 0, comment="dropped")
    file.frame([read()], 0)
    file.tlp("gpu0", read(), False)
    file.close()
    assert cli.main(["trace", str(file.path), "--tag", "3"]) == 0
    said = capsys.readouterr().out
    assert re.sub(" +", " ", said) == (
        "MRd 4 B @0xf000_0060 tag 3, by 01:00.0\n packet ns + ns cycles where what\n"
        " 1 100 host in MRd 4 B @0xf000_0060 tag 3\n"
        " 2 200 100 12 host path TLP seq 0 ack 0: MRd 4 B @0xf000_0060 tag 3 (dropped)\n"
        " 3 300 100 12 host path TLP seq 0 ack 0: MRd 4 B @0xf000_0060 tag 3 (sent again)\n"
        " 4 400 100 12 gpu0 out MRd 4 B @0xf000_0060 tag 3\n"
        "in all 300 38\n")
    assert cli.main(["trace", str(file.path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["requester"] == "01:00.0" and len(data["sights"]) == 4
    assert data["sights"][3]["way"] == "out" and data["sights"][2]["again"]


@pytest.mark.parametrize("options, which", [
    (["--tag", "4"], 2), (["--packet", "3"], 3), (["--address", "0xf000_0064"], 2),
    (["--requester", "01:00.0", "--which", "3"], 3), (["--which", "2"], 2)])
def test_which_is_shown(file, options, which, capsys):
    for n, tag in enumerate((3, 4, 5)):
        file.tlp("host", read(tag, 0xF0000060 + 4 * n), True)
    file.close()
    assert cli.main(["trace", str(file.path), *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sights"][0]["packet"] == which


def test_a_picture(file, tmp_path):
    file.tlp("host", read(), True)
    file.frame([read()], 0)
    file.tlp("gpu0", read(), False)
    file.tlp("gpu0", answer(), True)
    file.close()
    assert cli.main(["trace", str(file.path), "--picture", str(tmp_path / "way.svg")]) == 0
    text = (tmp_path / "way.svg").read_text()
    assert text.startswith("<?xml") and "GPU" in text


@pytest.mark.parametrize("options, line", [
    (["--tag", "7"], "no such TLP in '{}': `dxpu trace FILE` shows the first one of all"),
    (["--which", "2"], "--which must be at most 1: there are no more such TLPs"),
    (["--requester", "1:0.0"], "--requester must be an ID such as 01:00.0, not '1:0.0'"),
    (["--address", "here"], "--address must be hexadecimal, such as 0xf0000060, not 'here'"),
    (["--picture", "x.gif"], "--picture must end in .svg or .png, not 'x.gif'"),
    (["--picture", "x.svg"], "the TLP was seen at one place only: there is nothing to draw")])
def test_mistakes_get_one_line(file, options, line, capsys):
    file.tlp("host", read(), True)
    file.close()
    assert cli.main(["trace", str(file.path), *options]) == 2
    assert capsys.readouterr().err == f"dxpu trace: error: {line.format(file.path)}\n"


def test_files_that_are_no_captures_get_one_line(tmp_path, capsys):
    (tmp_path / "x").write_text("no capture, but a text that is long enough")
    for path, line in ((tmp_path / "x", f"'{tmp_path / 'x'}' is no capture: pcap and pcapng files "
                                        "are"),
                       (tmp_path / "y", f"no file '{tmp_path / 'y'}'"),
                       (tmp_path, f"cannot read '{tmp_path}': Is a directory")):
        assert cli.main(["trace", str(path)]) == 2
        assert capsys.readouterr().err == f"dxpu trace: error: {line}\n"
