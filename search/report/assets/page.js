"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const drawn = new Set();

  // Add the page's colours, light or dark, to the layout of a figure.
  const themed = (layout, narrow) => {
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
        ? { orientation: "h", x: 0, y: -0.3, yanchor: "top" }  // no room next to the buttons
        : { orientation: "h", x: 1, xanchor: "right", y: 1.02, yanchor: "bottom", ...layout.legend },
    };
    for (const key of new Set([...Object.keys(layout), "xaxis", "yaxis"])) {
      if (/^[xy]axis\d*$/.test(key)) merged[key] = { ...axis, ...layout[key] };
    }
    merged.updatemenus = (layout.updatemenus || []).map((menu) => ({
      ...menu, bgcolor: colour("--panel"), bordercolor: line, font: { color: ink },
    }));
    return merged;
  };

  const draw = (element) => {
    const source = document.querySelector(`script[data-plot="${element.id}"]`);
    const figure = JSON.parse(source.textContent);
    const narrow = element.clientWidth < 600;
    element.style.minHeight = narrow ? "430px" : "";
    drawn.add(element);
    return Plotly.react(element, figure.data, themed(figure.layout, narrow), { responsive: true, displaylogo: false });
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
  window.holdout = { watch, draw, drawn };
})();
