"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;

  // A figure's own layout, with the page's colours; the page shows the title above the chart.
  const layout = (figure) => {
    const night = dark.matches && !printing;
    const [ink, grid] = night ? ["#e6edf3", "#3d444d"] : ["#1b1f24", "#d0d7de"];
    const of = JSON.parse(JSON.stringify(figure.layout));
    delete of.title;
    of.margin = { ...of.margin, t: 40 };
    of.font = { color: ink, size: 12 };
    of.paper_bgcolor = of.plot_bgcolor = "rgba(0,0,0,0)";
    for (const axis of ["xaxis", "yaxis"]) {
      if (of[axis]) Object.assign(of[axis], { gridcolor: grid, zerolinecolor: grid, linecolor: grid });
    }
    return of;
  };
  const sizes = new ResizeObserver((entries) => {
    entries.forEach((entry) => Plotly.Plots.resize(entry.target));
  });
  const draw = (box) => {
    const figure = figures[box.dataset.chart];
    const config = { displayModeBar: false };
    Plotly.react(box, JSON.parse(JSON.stringify(figure.data)), layout(figure), config);
    if (!box.dataset.drawn) sizes.observe(box);
    box.dataset.drawn = "yes";
  };

  // Those in sight first; then the others, one at a time, so that the page answers meanwhile.
  const all = [...document.querySelectorAll("[data-chart]")];
  const inSight = (box) => box.getBoundingClientRect().top < innerHeight;
  const waiting = [...all.filter(inSight), ...all.filter((box) => !inSight(box))];
  const next = () => {
    const box = waiting.shift();
    if (!box) {
      document.documentElement.dataset.drawn = String(all.length);
      return;
    }
    draw(box);
    setTimeout(next, 0);
  };
  setTimeout(next, 0);

  const again = () => all.forEach(draw);
  dark.addEventListener("change", again);
  addEventListener("beforeprint", () => { printing = true; again(); });
  addEventListener("afterprint", () => { printing = false; again(); });
})();
