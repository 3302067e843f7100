"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const drawn = new Set();

  // Add the page's colours, light or dark, to the layout of a figure.
  const themed = (layout, narrow, height) => {
    const ink = colour("--ink"), line = colour("--line");
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
    const merged = {
      ...layout,
      autosize: true,
      uirevision: "kept",
      font: { ...layout.font, color: ink, family: "system-ui, sans-serif", size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--faint"), activecolor: ink },
      hoverlabel: { bgcolor: colour("--panel"), font: { color: ink }, bordercolor: line },
      margin: { l: 50, r: 15, t: 60, b: 45, ...layout.margin },
      legend: narrow
        ? { orientation: "h", x: 0, y: -75 / Math.max(height - 150, 100), yanchor: "top" }
        : { orientation: "h", x: 1, xanchor: "right", y: 1.02, yanchor: "bottom", ...layout.legend },
    };
    for (const key of new Set([...Object.keys(layout), "xaxis", "yaxis"])) {
      if (/^[xy]axis\d*$/.test(key)) merged[key] = { ...axis, ...layout[key] };
    }
    return merged;
  };

  // A click on a loss in any legend hides it on the whole page; a double click hides all others.
  const hidden = new Set();
  const lossOf = (trace) => trace.meta && trace.meta.loss;
  const hide = (root) => {
    for (const element of root.querySelectorAll("[data-loss]")) {
      element.classList.toggle("off", hidden.has(element.dataset.loss));
    }
  };
  const redraw = () => {
    hide(document);
    drawn.forEach((element) => element.clientWidth && draw(element));  // not those of a hidden section
  };
  const listen = (element) => {
    element.on("plotly_legendclick", (event) => {
      const loss = lossOf(event.data[event.curveNumber]);
      if (!loss) return true;
      if (!hidden.delete(loss)) hidden.add(loss);
      redraw();
      return false;
    });
    element.on("plotly_legenddoubleclick", (event) => {
      const loss = lossOf(event.data[event.curveNumber]);
      if (!loss) return true;
      const others = event.data.map(lossOf).filter((other) => other && other !== loss);
      const alone = !hidden.has(loss) && others.every((other) => hidden.has(other));
      hidden.clear();
      if (!alone) others.forEach((other) => hidden.add(other));
      redraw();
      return false;
    });
  };

  const draw = (element) => {
    const source = document.querySelector(`script[data-plot="${element.id}"]`);
    const figure = JSON.parse(source.textContent);
    const narrow = element.clientWidth < 600;
    const traces = figure.data.map((trace) => (hidden.has(lossOf(trace)) ? { ...trace, visible: "legendonly" } : trace));
    const least = parseFloat(element.style.height) < 300 ? 0 : 430;
    element.style.minHeight = narrow ? `${least}px` : "";
    const first = !drawn.has(element);
    drawn.add(element);
    // On a phone the icons would lie over legends.
    const config = { responsive: true, displaylogo: false, displayModeBar: narrow ? false : "hover" };
    const done = Plotly.react(element, traces, themed(figure.layout, narrow, element.clientHeight), config);
    if (first) listen(element);
    return done;
  };

  const plots = () => document.querySelectorAll(".plot");
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        observer.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "600px" });
  const watch = (root) => root.querySelectorAll(".plot").forEach((element) => observer.observe(element));

  const value = (row, column) => row.cells[column].textContent.trim();
  const sort = (heading) => {
    const column = heading.cellIndex, body = heading.closest("table").tBodies[0];
    const ascending = heading.getAttribute("aria-sort") === "descending";
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const rows = [...body.rows].sort((first, second) => {
      const [one, other] = [value(first, column), value(second, column)];
      const [left, right] = [one, other].map((text) => parseFloat(text.replace(/,/g, "").replace("−", "-")));
      if (isNaN(left) !== isNaN(right)) return isNaN(left) ? 1 : -1;  // text after numbers
      const order = isNaN(left) ? one.localeCompare(other) : left - right;
      return ascending ? order : -order;
    });
    body.append(...rows);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".sort");
    if (button) sort(button.parentElement);
  });

  watch(document);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
  addEventListener("beforeprint", () => plots().forEach((element) => drawn.has(element) || draw(element)));
  window.holdout = { watch, draw, drawn, hide };
})();
