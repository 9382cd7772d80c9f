"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const chips = [...document.querySelectorAll(".chip")];
  const views = new Map(); // chart's element -> Vega view
  let chosen = null; // "light" or "dark", once the reader has chosen

  const theme = () => chosen ?? (system.matches ? "dark" : "light");
  const hidden = () =>
    chips.filter((chip) => chip.getAttribute("aria-pressed") === "false").map((chip) => chip.dataset.run);

  const selected = (element) => {
    const select = element.parentElement.querySelector("select");
    return select ? Number(select.value) : 0;
  };

  // Vega has no axis for nothing: its domain would be infinite.
  function isEmpty(element) {
    const { byRun, names, columns } = report.figures[element.dataset.figure];
    if (!byRun) return false;
    const off = new Set(hidden());
    const column = columns[selected(element)];
    return !names.some((name) => report.data[name].some((row) => !off.has(row.run) && row[column] != null));
  }

  async function draw(element) {
    const { specs, byRun, names } = report.figures[element.dataset.figure];
    const spec = structuredClone(specs[selected(element)]);
    spec.datasets = { ...spec.datasets, ...Object.fromEntries(names.map((name) => [name, report.data[name]])) };
    if (byRun) spec.params.find((param) => param.name === "hidden").value = hidden();
    // Of several views, the PNG file of the one that is drawn.
    for (const link of element.parentElement.querySelectorAll("a[data-view]"))
      link.hidden = specs.length > 1 && Number(link.dataset.view) !== selected(element);
    views.get(element)?.finalize();
    views.delete(element);
    // Vega describes the element that it draws in; the outer one says what is shown.
    const inner = document.createElement("div");
    element.replaceChildren(inner);
    if (isEmpty(element)) {
      inner.className = "empty";
      inner.textContent = "The runs that are shown have no values here.";
      return;
    }
    const config = structuredClone(report.config[theme()]);
    // Long names leave room for what they are the names of.
    config.axis.labelLimit = Math.min(config.axis.labelLimit, 0.38 * element.clientWidth);
    // On a phone, legends stand below each other.
    if (element.clientWidth < 500)
      config.legend = { ...config.legend, columns: 2, layout: { top: { direction: "vertical", anchor: "start" } } };
    const { view } = await vegaEmbed(inner, spec, { actions: false, renderer: "svg", config });
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
    for (const element of charts) {
      if (!report.figures[element.dataset.figure].byRun) continue;
      const view = views.get(element);
      if (view && !isEmpty(element)) await view.signal("hidden", off).runAsync();
      else await draw(element);
    }
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
