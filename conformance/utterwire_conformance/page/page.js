"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = document.getElementById("theme");
  const remembered = () => {
    try { return localStorage.getItem("utterwire-theme"); } catch { return null; }
  };
  const show = (name) => {
    root.dataset.theme = name;
    theme.textContent = name === "dark" ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
  };
  show(remembered() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => { if (!remembered()) show(dark.matches ? "dark" : "light"); });
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const name = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("utterwire-theme", name); } catch { /* nothing is remembered */ }
    show(name);
  });

  const form = document.getElementById("filter");
  const field = (name) => document.getElementById(`filter-${name}`);
  const text = field("text"), verdict = field("verdict"), profile = field("profile"), level = field("level");
  const findings = [...document.querySelectorAll(".finding")];
  const index = [...document.querySelectorAll(".index li")].map((item) => [item, document.getElementById(item.querySelector("a").hash.slice(1))]);
  const rows = [...document.querySelectorAll("tr.row")];
  const clauses = [...document.querySelectorAll(".clause")];
  const unclaimed = document.getElementById("unclaimed");
  const words = new Map();
  for (const each of [...findings, ...rows]) words.set(each, each.textContent.toLowerCase());

  const matches = (each) => {
    const data = each.dataset;
    const known = "known" in data;
    if (verdict.value === "known" ? !known : verdict.value && (data.verdict !== verdict.value)) return false;
    if (profile.value && data.profile !== profile.value) return false;
    if (level.value && data.level !== level.value) return false;
    return text.value.toLowerCase().split(/\s+/).every((word) => words.get(each).includes(word));
  };
  const apply = () => {
    for (const each of [...findings, ...rows]) each.hidden = !matches(each);
    for (const [item, finding] of index) item.hidden = finding.hidden;
    const left = rows.filter((row) => !row.hidden).length;
    for (const clause of clauses) clause.hidden = !clause.querySelector("tr.row:not([hidden])");
    if (unclaimed) {
      unclaimed.hidden = !unclaimed.querySelector("tr.row:not([hidden])");
      if (verdict.value === "not-claimed") unclaimed.open = true;
    }
    document.getElementById("nothing").hidden = left > 0;
    field("count").textContent = left === rows.length ? `${left} requirements` : `${left} of ${rows.length} requirements`;
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => { setTimeout(apply); });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      text.focus();
    } else if (event.key === "Escape" && form.contains(event.target)) {
      form.reset();
    }
  });
  addEventListener("beforeprint", () => { for (const each of document.querySelectorAll(".finding details")) each.open = true; });
  apply();
})();
