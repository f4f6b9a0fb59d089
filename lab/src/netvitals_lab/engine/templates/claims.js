"use strict";
(() => {
const rows = Array.from(document.querySelectorAll(".claims tbody tr[data-status]"));
const groups = Array.from(document.querySelectorAll(".claims tbody"));
const open = new Set();
const fold = (body, folded) => {
  body.classList.toggle("folded", folded);
  const button = body.querySelector(".group button");
  if (button) button.setAttribute("aria-expanded", String(!folded));
};
for (const body of groups) {
  const button = body.querySelector(".group button");
  if (button) button.addEventListener("click", () => { const now = body.classList.contains("folded"); if (now) open.add(body); else open.delete(body); fold(body, !now); });
}
const field = (id) => document.getElementById(id);
const show = () => {
  const paper = field("paper").value, status = field("status").value, words = field("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !((!paper || row.dataset.paper === paper) && (!status || row.dataset.status === status) && words.every((w) => text.includes(w)));
    count += !row.hidden;
  }
  const asked = Boolean(paper || status || words.length);      // whoever looks for something sees it
  for (const body of groups) {
    const left = body.querySelectorAll("tr[data-status]:not([hidden])").length;
    body.querySelector(".group").hidden = !left;
    if (body.querySelector(".group button")) fold(body, !((asked && left <= 40) || open.has(body)));
  }
  field("shown").textContent = `${count} shown`;
  const hash = new URLSearchParams(Object.entries({ paper, status, find: words.join(" ") }).filter(([, v]) => v)).toString();
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname.split("/").pop() || "#");
};
const wanted = new URLSearchParams(location.hash.slice(1));
for (const id of ["paper", "status", "find"]) {
  if (wanted.has(id)) field(id).value = wanted.get(id);
  field(id).addEventListener("input", show);
}
if ([...wanted.keys()].some((k) => ["paper", "status", "find"].includes(k))) show();
const button = field("theme");
const paint = (theme) => { document.documentElement.dataset.theme = theme; button.textContent = theme === "dark" ? "light" : "dark"; };
if (window.matchMedia && window.matchMedia("(prefers-color-scheme: dark)").matches) paint("dark");
button.addEventListener("click", () => paint(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
})();
