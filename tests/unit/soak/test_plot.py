"""The picture of a soak run is SVG of a bounded size that shows what was measured."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from soak.measures import Fault, Measures, Sample, percentile
from soak.plot import Panel, draw, panels, thinned

SVG = "{http://www.w3.org/2000/svg}"


def drawn(path: Path, shown: list[Panel], faults: list[Fault]) -> ElementTree.Element:
    draw(path, "a run & its <faults>", shown, faults)
    return ElementTree.parse(path).getroot()


def test_a_line_rises_with_its_values_and_time_goes_to_the_right(tmp_path: Path) -> None:
    shown = [Panel("memory", {"broker": [(0, 10), (30, 20), (60, 40)]}, budget=50)]
    root = drawn(tmp_path / "plot.svg", shown, [Fault("kill", 10, 12)])
    (line,) = root.findall(f"{SVG}polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert "a run & its <faults>" in texts
    assert "kill" in texts
    assert "1.0 min" in texts


def test_a_logarithmic_panel_has_a_tick_for_each_decade(tmp_path: Path) -> None:
    shown = [Panel("latency", {"p50": [(0, 0.0), (1, 950.0)]}, is_log=True)]
    root = drawn(tmp_path / "plot.svg", shown, [])
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert {"0.1", "1", "10", "100", "1000"} <= set(texts)


def test_a_run_without_any_sample_can_be_drawn(tmp_path: Path) -> None:
    root = drawn(tmp_path / "plot.svg", panels(Measures(), memory_mib=1, descriptors=1), [])
    assert root.findall(f"{SVG}polyline")


def test_many_samples_are_thinned_and_keep_their_peaks(tmp_path: Path) -> None:
    measures = Measures()
    measures.samples["broker"] = [Sample(at, 500 if at == 777 else 1, 3) for at in range(36_000)]
    path = tmp_path / "plot.svg"
    drawn(path, panels(measures, memory_mib=256, descriptors=512), [])
    assert path.stat().st_size < 100_000
    points = [(one.second, one.own_mib) for one in measures.samples["broker"]]
    assert max(value for _, value in thinned(points)) == 500


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([1.0], 0.99) == 1.0
    assert percentile([float(number) for number in range(100)], 0.99) == 99.0
    assert percentile([float(number) for number in range(100)], 0.5) == 50.0
