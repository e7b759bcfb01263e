"""The HTML report in a real browser."""

import html
import json
import re
import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest
import torch
from configs import make_config
from matplotlib.colors import to_rgb

from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.diagnose import diagnose_draws
from sbi_colt.report.colours import BLUE, GREEN, ORANGE

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")

HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"
PHONE = 360
# The page in a frame as wide as a phone, and what the browser made of it.
WRAPPER = """<!doctype html><meta charset="utf-8"><title>not measured</title>
<iframe id="frame" style="width: {width}px; height: 800px; border: 0"
        srcdoc="{page}"></iframe>
<script>
onload = () => {{
  const page = document.getElementById("frame").contentDocument;
  const images = [...page.images].map(image => image.naturalWidth);
  document.title = JSON.stringify({{
    width: page.documentElement.scrollWidth,
    images: images,
    cells: page.querySelectorAll("td").length,
    verdict: page.querySelector("td:nth-child(2)").getBoundingClientRect().right,
    title: page.title,
    text: page.body.innerText,
    fetched: frame.contentWindow.performance.getEntriesByType("resource")
      .map(entry => entry.name).filter(name => !name.startsWith("data:")),
  }});
}};
</script>
"""


def browse(folder, *arguments):
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        *map(str, arguments),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    draws = GaussianTask("mean", 0.5, 2, 2).draws(
        200, 50, torch.Generator().manual_seed(0)
    )
    report = diagnose_draws(
        draws,
        config=make_config(max_epochs=5, num_redraws=199),
        seed=0,
        show_progress_bar=False,
        parameter_names=[HOSTILE, "b & c"],
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.to_html(path)
    return path


def test_the_page_fits_a_phone_and_fetches_nothing(page, tmp_path):
    text = html.escape(page.read_text(encoding="utf-8"))
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(WRAPPER.format(width=PHONE, page=text), encoding="utf-8")
    seen = browse(
        tmp_path, "--dump-dom", "--virtual-time-budget=10000", wrapper.as_uri()
    )
    title = re.search(r"<title>(.*?)</title>", seen, re.DOTALL)
    assert title is not None
    measured = json.loads(html.unescape(title.group(1)))
    assert measured["width"] <= PHONE
    assert len(measured["images"]) == 6
    assert min(measured["images"]) > 100
    assert measured["fetched"] == []
    assert measured["title"] == "Posterior diagnostics"  # not "hacked"
    assert HOSTILE in measured["text"]  # shown as text
    assert "REJECTED" in measured["text"]
    assert measured["cells"] == 4 * 5
    assert measured["verdict"] <= PHONE  # seen without scrolling


def test_the_page_shows_verdict_and_figures_in_colour(page, tmp_path):
    picture = tmp_path / "page.png"
    browse(
        tmp_path, "--window-size=1000,1800", f"--screenshot={picture}", page.as_uri()
    )
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape[:2] == (1800, 1000)

    def shown(colour, part):
        gaps = np.abs(part - np.array(to_rgb(colour))).max(axis=-1)
        return int((gaps < 0.02).sum())

    text, figures = pixels[:150], pixels[500:]
    assert shown(ORANGE, text) > 100  # the bar of a rejection
    assert shown(GREEN, text) == 0
    assert shown(BLUE, figures) > 500  # curves
    assert shown(ORANGE, figures) > 500
