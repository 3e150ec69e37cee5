"use strict";
(async () => {
  const report = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const tip = document.getElementById("tip");
  const plots = [];  // {plot, place} of all drawn charts
  const hidden = new Set();  // names of hidden entries: runs, or all seeds of a configuration
  let axis = Object.keys(report.axes)[0];

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const brief = () => report.axes[axis].replace(/,[^)]*/, "");
  const figure = (value) => String(Number(value.toPrecision(4)));
  const lines = (plot) => plot.renderers.filter((renderer) => renderer.glyph !== undefined);

  function paint({plot}) {
    const [text, faint, line] = ["--text", "--faint", "--line"].map(color);
    for (const drawn of [...plot.below, ...plot.left]) {
      drawn.setv({
        axis_label_text_color: text, axis_label_text_font_style: "normal",
        major_label_text_color: faint, axis_line_color: line,
        major_tick_line_color: line, minor_tick_line_color: null,
      });
    }
    for (const renderer of lines(plot).filter(({tags}) => tags[1] === "hollow")) {
      renderer.glyph.fill_color = color("--page");
    }
    for (const grid of plot.center) {
      grid.setv({grid_line_color: line, grid_line_alpha: 0.6});
    }
  }

  function turn({plot}) {
    for (const renderer of lines(plot)) {
      renderer.glyph.x = {field: axis};
    }
    plot.below[0].axis_label = plot.height < 300 ? brief() : report.axes[axis];
    plot.reset.emit();  // a zoom is lost, because it belongs to the former axis
  }

  // Returns each run's point nearest to x, the highest first.
  function nearest(plot, x) {
    const points = [];
    const range = plot.x_range;
    for (const {visible, name, glyph, data_source: {data}} of lines(plot)) {
      if (!visible || glyph.type !== "Line") {
        continue;
      }
      const places = data[axis];
      let best = 0;
      for (let i = 1; i < places.length; i++) {
        if (Math.abs(places[i] - x) < Math.abs(places[best] - x)) {
          best = i;
        }
      }
      if (Math.abs(places[best] - x) <= (range.end - range.start) / 30) {
        points.push({name, x: places[best], y: data.y[best], color: glyph.line_color.value});
      }
    }
    return points.sort((a, b) => b.y - a.y);
  }

  function point({plot, place}, event) {
    const points = nearest(plot, event.x);
    tip.hidden = points.length === 0;
    tip.replaceChildren();
    for (const {name, x, y, color} of points.slice(0, 12)) {
      const row = tip.insertRow();
      const mark = row.insertCell();
      mark.className = "mark";
      mark.style.background = color;
      for (const cell of [name, figure(y), `at ${figure(x)}`]) {
        row.insertCell().textContent = cell;
      }
    }
    const box = place.getBoundingClientRect();
    const right = event.sx + 16 + tip.offsetWidth > box.width;
    tip.style.left = `${Math.max(4, scrollX + box.left + event.sx + (right ? -16 - tip.offsetWidth : 16))}px`;
    tip.style.top = `${scrollY + box.top + event.sy + 12}px`;
  }

  function hide({plot}) {
    for (const renderer of lines(plot)) {
      renderer.visible = !hidden.has(renderer.tags[0]);
    }
  }

  async function draw(inside) {
    for (const chart of report.charts) {
      const place = document.getElementById(chart.target);
      if (!inside(place) || place.childElementCount > 0) {
        continue;
      }
      const views = await Bokeh.embed.embed_item(chart.item, chart.target);
      const drawn = {plot: views.roots[0].model, place};
      plots.push(drawn);
      drawn.plot.on_event("mousemove", (event) => point(drawn, event));
      drawn.plot.on_event("tap", (event) => point(drawn, event));
      drawn.plot.on_event("mouseleave", () => { tip.hidden = true; });
      if (matchMedia("(pointer: fine)").matches) {  // a finger drags the page
        drawn.plot.toolbar.active_drag = drawn.plot.toolbar.tools.find((tool) => tool.type === "BoxZoomTool");
      }
      paint(drawn);
      turn(drawn);
      hide(drawn);
    }
  }

  // Says above a box that it is wider than the page, and pales the side where more of it is hidden.
  function hint(box) {
    const note = document.createElement("p");
    note.className = "hint";
    note.textContent = "← scroll the table sideways →";
    note.setAttribute("aria-hidden", "true");
    box.before(note);
    const show = () => {
      const left = box.scrollWidth - box.clientWidth;
      note.hidden = left <= 1;
      box.classList.toggle("more-left", box.scrollLeft > 1);
      box.classList.toggle("more-right", box.scrollLeft < left - 1);
    };
    box.addEventListener("scroll", show, {passive: true});
    new ResizeObserver(show).observe(box);
    show();
  }

  document.querySelectorAll(".scroll").forEach(hint);
  dark.addEventListener("change", () => plots.forEach(paint));
  for (const input of document.querySelectorAll("input[name=axis]")) {
    input.addEventListener("change", () => {
      axis = input.value;
      plots.forEach(turn);
    });
    input.checked = input.value === axis;  // a browser may remember another
  }
  for (const button of document.querySelectorAll("button.run")) {
    button.addEventListener("click", () => {
      const name = button.dataset.run;
      hidden.delete(name) || hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      plots.forEach(hide);
    });
  }
  const losses = document.getElementById("losses");
  losses?.addEventListener("toggle", () => losses.open && draw((place) => losses.contains(place)));
  await draw((place) => !losses?.contains(place));
  document.documentElement.dataset.drawn = "true";
})();
