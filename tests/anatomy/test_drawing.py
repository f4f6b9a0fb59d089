"""An anatomy is drawn as an outline and as a page that folds, complete and without foreign files or scripts."""

import re
from html.parser import HTMLParser

import torch
from torch import nn

from netvitals.anatomy import chart


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 8), nn.Linear(8, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, blocks=4):
        super().__init__()
        self.head, self.blocks, self.embed = (
            nn.Linear(6, 2),
            nn.ModuleList(Block(6) for _ in range(blocks)),
            nn.Linear(3, 6),
        )
        self.attend = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return torch.sigmoid(self.head(h + self.attend(h, h, h, need_weights=False)[0]))


class Tags(HTMLParser):
    """What a page is made of; fails on tags that do not close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.attributes, self.words = [], [], [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += [(tag, k, v) for k, v in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def found(blocks=4):
    return chart(Net(blocks), torch.randn(5, 7, 3))


def test_an_outline_goes_in_the_order_of_the_pass_and_draws_blocks_that_repeat_once():
    text = str(found())
    order = [
        text.index(word)
        for word in ("embed ", "blocks", "0 … 3  Block, 4 alike, adds to the stream", "attend", "head ")
    ]
    assert order == sorted(order)
    assert text.count("hidden activation") == 1 and "output link" in text and "readout" in text
    assert "attention, 2 heads of 3: q in_proj_weight[0:6]" in text and "B×7×6" in text and "B·7×8" in text
    assert "stream of width 6: from embed, 5 additions by blocks.0.down" in text
    assert max(map(len, text.splitlines()[:12])) <= 118


def test_an_outline_of_a_deep_model_stays_on_a_few_screens():
    layers = [m for i in range(90) for m in (nn.Linear(4 + i, 5 + i), nn.ReLU())]
    text = str(chart(nn.Sequential(*layers), torch.randn(2, 4)))
    assert "… and 100 more lines" in text and len(text.splitlines()) < 100


def test_a_page_shows_every_site_and_is_closed_in_itself(tmp_path):
    anatomy = found()
    path = tmp_path / "anatomy.html"
    text = anatomy.to_html(path)
    assert path.read_text(encoding="utf-8") == text
    tags = Tags(text)
    shown = {v for tag, k, v in tags.attributes if tag == "li" and k == "title"}
    sites = {name for name, role in anatomy.roles.items() if role not in ("scale", "normaliser")}
    assert sites <= shown and {n.name for n in anatomy.norms} <= shown
    assert tags.seen.count("details") == 1 + 1 + 4 + 1  # the model, the list, four blocks, the attention
    assert not {"script", "link", "img", "iframe"} & set(tags.seen)
    assert not [k for _, k, _ in tags.attributes if k.startswith("on") or k in ("src", "href")]
    assert "url(" not in text and "http" not in text and "prefers-color-scheme: dark" in text


def test_roles_and_numbers_colour_the_sites():
    anatomy = found(1)
    assert 'class="site output-link"' in anatomy.to_html() and 'class="chip readout"' in anatomy.to_html()
    page = anatomy.to_html(colours={"embed": 0.0, "head": 4.0, "blocks.0.up": 1.0, "blocks.0.down": float("nan")})
    share = dict(re.findall(r'--share:([\d.]+)%" title="([^"]+)"', page))
    assert {name: float(s) for s, name in share.items()} == {"embed": 0.0, "blocks.0.up": 25.0, "head": 100.0}
    assert page.count('class="site none"') == len(re.findall('<li class="site', page)) - 3
    assert '<span class="value">4</span>' in page and "ramp" in page


def test_experts_are_bars_and_heads_are_squares_and_names_are_escaped():
    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            weight, chosen = self.gate(x).softmax(-1).max(-1)
            out = torch.zeros_like(x)
            for e, expert in enumerate(self.experts):
                rows = torch.where(chosen == e)[0]
                out = out.index_add(0, rows, expert(x[rows]) * weight[rows, None])
            return out

    Router.__name__ = "Router<3>"
    anatomy = chart(Router(), torch.randn(30, 4))
    page = anatomy.to_html()
    assert page.count('class="bar') == 3 and "Router&lt;3&gt;" in page and "Router<3>" not in page
    assert sum(anatomy.experts[0].tokens) == 30
    page = found().to_html()
    assert page.count('class="q"') == 2 and page.count('class="k"') == 2
