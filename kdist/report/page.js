"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const chips = [...document.querySelectorAll(".chip")];
  const views = new Map(); // chart's element -> Vega view
  let chosen = null; // "light" or "dark" once the reader chose

  const theme = () => chosen ?? (system.matches ? "dark" : "light");
  const hidden = () =>
    chips.filter((chip) => chip.getAttribute("aria-pressed") === "false").map((chip) => chip.dataset.run);

  // That a chart is empty is no warning where the reader switched every run off: errors only.
  const level = () => (chips.length > 0 && hidden().length === chips.length ? 1 : 2);

  async function draw(element) {
    const { specs, byRun, names } = report.figures[element.dataset.figure];
    const select = element.parentElement.querySelector("select");
    const spec = structuredClone(specs[select ? Number(select.value) : 0]);
    spec.datasets = { ...spec.datasets, ...Object.fromEntries(names.map((name) => [name, report.data[name]])) };
    if (byRun) spec.params.find((param) => param.name === "hidden").value = hidden();
    // Of several views, the PNG file of the one that is drawn.
    for (const link of element.parentElement.querySelectorAll("a[data-view]"))
      link.hidden = select !== null && link.dataset.view !== select.value;
    views.get(element)?.finalize();
    // Vega puts words of its own on the element it draws in; the outer one says what is shown.
    const inner = document.createElement("div");
    element.replaceChildren(inner);
    const { view } = await vegaEmbed(inner, spec, {
      actions: false, renderer: "svg", config: report.config[theme()], logLevel: level(),
    });
    inner.setAttribute("aria-hidden", "true");
    views.set(element, view);
  }

  const charts = [...document.querySelectorAll(".chart")];
  const drawAll = async () => {
    root.dataset.theme = theme();
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    for (const chart of charts) await draw(chart);
    root.dataset.drawn = theme();
  };

  async function filter() {
    const off = hidden();
    const shown = document.getElementById("shown");
    if (shown) shown.textContent = `${chips.length - off.length} of ${chips.length} shown`;
    for (const [element, view] of views)
      if (report.figures[element.dataset.figure].byRun)
        await view.logLevel(level()).signal("hidden", off).runAsync();
  }

  for (const chip of chips)
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") === "false"));
      filter();
    });
  for (const all of document.querySelectorAll("[data-choose]"))
    all.addEventListener("click", () => {
      for (const chip of chips) chip.setAttribute("aria-pressed", String(all.dataset.choose === "all"));
      filter();
    });
  for (const chart of charts)
    chart.parentElement.querySelector("select")?.addEventListener("change", () => draw(chart));
  button.addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    drawAll();
  });
  system.addEventListener("change", drawAll);
  drawAll().then(filter);
})();
