"use strict";
(() => {
  const EVERY = 2000, REPORT_EVERY = 10000;
  const path = location.pathname.replace(/^\/([^/]+)$/, "/searches/$1").match(/^\/(searches|campaigns)\/(.+)$/) || [];
  const name = decodeURIComponent(path[2] || ""), isCampaign = path[1] === "campaigns";
  const address = (page, of) => `/${page}/${encodeURIComponent(of)}`;
  const byId = (id) => document.getElementById(id);

  // Text from the records is inserted as text, never as markup.
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const drawing = (tag, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  let unit = 1;  // 100 for a metric in per cent
  const number = (value) => (value === null ? "–" : (unit * value).toFixed(unit > 1 ? 2 : 4));
  const clock = (seconds) => {
    const whole = Math.round(seconds), pad = (value) => String(value).padStart(2, "0");
    return `${pad(Math.floor(whole / 3600))}:${pad(Math.floor(whole / 60) % 60)}:${pad(whole % 60)}`;
  };
  const ask = async (path) => {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  };

  const bar = (study) => {
    const parts = element("div", {
      class: "bar", role: "img",
      "aria-label": `${study.complete} complete, ${study.pruned} pruned, ${study.failed} failed, ${study.running} running of ${study.planned}`,
    });
    for (const state of ["complete", "pruned", "failed", "running"]) {
      const share = (100 * study[state]) / Math.max(study.planned, 1);
      if (share) parts.append(element("span", { class: state, style: `width:${share}%` }));
    }
    return parts;
  };
  const legend = () => {
    const parts = element("p", { class: "legend" });
    for (const state of ["complete", "pruned", "failed", "running"]) parts.append(element("span", { class: `key ${state}` }), `${state} `);
    return parts;
  };
  const table = (caption, header, rows) => {
    const head = element("tr");
    for (const heading of header) head.append(element("th", { scope: "col" }, heading));
    const body = element("tbody");
    for (const cells of rows) {
      const row = element("tr");
      cells.forEach((cell, position) => row.append(position ? element("td", {}, cell) : element("th", { scope: "row" }, cell)));
      body.append(row);
    }
    const made = element("table", {}, element("caption", {}, caption), element("thead", {}, head), body);
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made);
  };
  const studies = (line) => table("Studies",
    ["study", "progress", "complete", "pruned", "failed", "running", "planned", "epochs", "best in search"],
    line.studies.map((study) => [study.study, bar(study), study.complete, study.pruned, study.failed, study.running,
      study.planned, study.epochs, study.stage === "search" ? number(study.best) : ""].map((cell) => (typeof cell === "number" ? String(cell) : cell))));

  const curve = (trial) => {
    const width = 240, height = 70, values = trial.values;
    const svg = drawing("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" });
    svg.setAttribute("aria-label", values.length ? `values ${values.map(number).join(", ")}` : "no epoch yet");
    const all = trial.bar === null ? values : [...values, trial.bar];
    const low = Math.min(...all), span = Math.max(...all) - low || 1;
    const x = (epoch) => (width * epoch) / trial.epochs, y = (value) => height - 6 - ((height - 12) * (value - low)) / span;
    if (trial.rung !== null) {
      svg.append(drawing("line", { x1: x(trial.rung), x2: x(trial.rung), y1: 0, y2: height, stroke: "currentColor", "stroke-dasharray": "2 3", opacity: 0.6 }));
      if (trial.bar !== null) {
        svg.append(drawing("line", { x1: x(trial.rung) - 8, x2: x(trial.rung) + 8, y1: y(trial.bar), y2: y(trial.bar), stroke: "#d55e00", "stroke-width": 2 }));
      }
    }
    const points = values.map((value, position) => `${x(position + 1)},${y(value)}`).join(" ");
    svg.append(drawing("polyline", { points, fill: "none", stroke: "currentColor", "stroke-width": 2 }));
    for (const [position, value] of values.entries()) {
      svg.append(drawing("circle", { cx: x(position + 1), cy: y(value), r: 2, fill: "currentColor" }));
    }
    return svg;
  };
  const card = (trial) => {
    const last = trial.values.length ? number(trial.values[trial.values.length - 1]) : "no epoch yet";
    const rung = trial.rung === null ? "" : ` · ${trial.bar === null ? "rung" : `needs ${number(trial.bar)}`} at ${trial.rung}`;
    const memory = trial.memory_gb === null ? "" : ` · ${trial.memory_gb.toFixed(1)} GB`;
    return element("article", { class: "trial" }, element("h3", {}, `${trial.study} ${trial.number}`), curve(trial),
      element("p", {}, `${trial.values.length} of ${trial.epochs} epochs · ${last}${rung}${memory}`));
  };

  const showSearch = (found) => {
    const line = found.status, parts = [];
    unit = found.unit;
    const time = [
      found.elapsed_s === null ? "" : `${clock(found.elapsed_s)} so far`,
      line.driver === null ? "not running" : found.left_s === null ? "remaining time known after the first trial" : `about ${clock(found.left_s)} left`,
    ].filter(Boolean).join(", ");
    byId("status").textContent = `${line.state}: ${time}; ${found.running.length} of ${found.slots} slots busy`;
    if (found.running.length) {
      const cards = element("div", { class: "trials" });
      cards.append(...found.running.slice(0, 64).map(card));
      parts.push(element("h2", {}, "Running now"), cards);
    }
    parts.push(studies(line), legend());
    if (found.failures.length) {
      parts.push(table("Failures, newest first", ["trial", "reason"],
        found.failures.map((failure) => [`${failure.study} ${failure.number}`, failure.reason])));
    }
    byId("now").replaceChildren(...parts);
    if (line.finished) byId("report").after(byId("now"));  // the answer leads
  };
  const total = (lines) => Object.fromEntries(["complete", "pruned", "failed", "running", "planned"].map((key) =>
    [key, lines.reduce((sum, line) => sum + line.studies.reduce((of, study) => of + study[key], 0), 0)]));
  const busy = (lines) => `${lines.filter((line) => line.driver !== null).length} of ${lines.length} running`;
  const searches = (lines) => table("Searches", ["search", "state", "progress", "running", "left"], lines.map((line) =>
    [element("a", { href: address("searches", line.name) }, line.name), line.problem || line.state, bar(total([line])),
      String(total([line]).running), line.left_s === null ? "–" : `about ${clock(line.left_s)}`]));
  const campaigns = (found, lines) => table("Campaigns", ["campaign", "searches finished", "progress", "running"], found.map((campaign) => {
    const own = lines.filter((line) => campaign.searches.includes(line.name));
    const state = campaign.problem || `${own.filter((line) => line.finished).length} of ${campaign.searches.length}`;
    return [element("a", { href: address("campaigns", campaign.name) }, campaign.name), state, bar(total(own)), String(total(own).running)];
  }));
  const showAll = (lines, found) => {
    byId("status").textContent = busy(lines);
    byId("now").replaceChildren(...(found.length ? [campaigns(found, lines)] : []), searches(lines), legend());
  };
  const showCampaign = (lines, found) => {
    const campaign = found.find((entry) => entry.name === name);
    if (!campaign) throw new Error(`there is no campaign ${name}`);
    const own = lines.filter((line) => campaign.searches.includes(line.name));
    byId("status").textContent = campaign.problem || `${own.length} of ${campaign.searches.length} searches have started, ${busy(own)}`;
    byId("now").replaceChildren(campaigns([campaign], lines), searches(own), legend());
  };

  // Replace changed sections, and keep what the reader has opened and zoomed.
  const shown = new Map();
  const merge = (section) => {
    const made = document.createRange().createContextualFragment(section.html).querySelector("section");
    const before = document.getElementById(section.name);
    if (!before) {
      byId("report").append(made);
      holdout.hide(made.parentElement);
      holdout.watch(made);
      return;
    }
    const opened = new Set([...before.querySelectorAll("details[open] > summary")].map((entry) => entry.textContent));
    for (const plot of made.querySelectorAll(".plot")) {
      const drawn = document.getElementById(plot.id);
      if (drawn) {
        plot.replaceWith(drawn);
        drawn.setAttribute("aria-label", plot.getAttribute("aria-label"));
      }
    }
    for (const summary of made.querySelectorAll("details > summary")) summary.parentElement.open = opened.has(summary.textContent);
    before.replaceWith(made);
    holdout.hide(made.parentElement);
    for (const plot of made.querySelectorAll(".plot")) {
      if (holdout.drawn.has(plot)) holdout.draw(plot);
      else holdout.watch(plot.parentElement);
    }
  };
  const report = async () => {
    const sections = await ask(`/api${address("searches", name)}/report`);
    for (const section of sections) {
      if (shown.get(section.name) === section.digest) continue;
      if (!shown.has(section.name)) {
        const of = section.loss ? { "data-loss": section.loss } : {};
        byId("sections").append(element("li", of, element("a", { href: `#${section.name}` }, section.title)));
      }
      shown.set(section.name, section.digest);
      merge(section);
    }
  };
  const now = async () => {
    if (!name || isCampaign) {
      const [found, campaigns] = await Promise.all(["searches", "campaigns"].map((of) => ask(`/api/${of}`)));
      return (name ? showCampaign : showAll)(found.map(({ status, left_s }) => ({ ...status, left_s })), campaigns);
    }
    showSearch(await ask(`/api${address("searches", name)}`));
  };
  const again = async (what, pause) => {
    const began = performance.now();
    try {
      await what();
    } catch (error) {
      byId("status").textContent = `No answer: ${error.message}`;
    }
    // Reading thousands of trials takes a second. Pausing ten times as long (at most 10 s) limits the load to a tenth
    // of a core.
    const rest = Math.min(10 * (performance.now() - began), 10_000);
    setTimeout(() => again(what, pause), Math.max(pause, rest));
  };

  if (name) byId("title").textContent = document.title = name;
  again(now, EVERY);
  if (name && !isCampaign) again(report, REPORT_EVERY);
})();
