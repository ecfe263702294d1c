"""Message charts of sessions that break."""

import re
from xml.etree import ElementTree

import pytest

from dxpu_cli.pages import fabric_spec as page
from dxpu_model.spec.catalogue import cases
from dxpu_model.spec.chart import chart
from dxpu_model.spec.search import search
from dxpu_model.spec.session import Sessions

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases()
                                  if case.model in ("session", "keyed") and case.breaks])
def test_every_step_is_there_and_every_frame_taken_has_an_arrow(case):
    result = search(case.make())
    drawing = ElementTree.fromstring(chart(case.make()))
    texts = [text.text for text in drawing.iter(f"{SVG}text")]
    assert texts[:2] == ["host", "box"] and texts[-1] == result.fault
    assert texts[2:-1] == [re.sub("^(host|box):? ", "", step) for step in result.trace]
    arrows = [line for line in drawing.iter(f"{SVG}line") if line.get("marker-end")]
    assert len(arrows) == sum(" takes " in step for step in result.trace)
    for arrow in arrows:
        assert arrow.get("x1") != arrow.get("x2")
        assert int(arrow.get("y1")) < int(arrow.get("y2"))


def test_a_session_that_holds_has_no_chart():
    with pytest.raises(ValueError, match="^model must have a fault$"):
        chart(Sessions(tlps=(1, 0), offers=1))


def test_the_pictures_of_the_page_are_what_the_models_draw():
    for path, case in page.FIGURES.items():
        assert path.read_text() == page.figure(*case)
        assert f"figures/{path.name}" in page.PAGE.read_text()
