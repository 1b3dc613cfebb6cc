"use strict";
(() => {
  const root = document.documentElement, svgSpace = "http://www.w3.org/2000/svg";
  const make = (tag, kind, content) => {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    if (content !== undefined) node.textContent = content;
    return node;
  };
  const named = (node, name) => {  // J_0.05 as the paper sets it
    name.split(/([JL]_[0-9.]+)/).forEach(part => {
      const sub = part.match(/^([JL])_(.+)$/);
      node.append(sub ? sub[1] : part);
      if (sub) node.append(make("sub", "", sub[2]));
    });
    return node;
  };

  const button = document.getElementById("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("mlcpc-theme"); } catch { return null; } };
  const show = () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    button.textContent = now === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
  };
  if (stored()) root.dataset.theme = stored();
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = button.textContent.toLowerCase();
    try { localStorage.setItem("mlcpc-theme", root.dataset.theme); } catch { /* a file may have no storage */ }
    show();
  });
  dark.addEventListener("change", show);
  show();

  const WIDTH = 480;
  for (const plot of document.querySelectorAll(".plot")) {
    const data = JSON.parse(plot.dataset.stops), svg = plot.querySelector("svg");
    if (!data.stops.length) continue;
    const [left, right, top, bottom] = data.box;
    let at = -1, tip = null, layer = null;
    const say = stop => data.series.map(([name], i) => stop[2][i] ? `${name.replace("_", " ")} ${stop[2][i][0]}` : "")
      .filter(Boolean).join(", ");
    const clear = () => { tip?.remove(); layer?.remove(); tip = layer = null; at = -1; };
    const move = next => {
      next = Math.max(0, Math.min(data.stops.length - 1, next));
      if (next === at && tip) return;
      clear();
      at = next;
      const [pos, title, values] = data.stops[at];
      layer = document.createElementNS(svgSpace, "g");
      const cursor = document.createElementNS(svgSpace, "path");
      cursor.setAttribute("class", "cursor");
      cursor.setAttribute("d", data.rows ? `M${left} ${pos}H${right}` : `M${pos} ${top}V${bottom}`);
      layer.append(cursor);
      tip = make("div", "tip");
      tip.append(named(make("b"), title));
      data.series.forEach(([name, usual], i) => {
        if (!values[i]) return;
        const [text, place, tone = usual] = values[i], row = make("div");
        row.append(make("i", `key line ${tone}`), named(make("span"), name), make("span", "", text));
        tip.append(row);
        if (place === null) return;
        const dot = document.createElementNS(svgSpace, "circle");
        dot.setAttribute("class", `cursor-dot ${tone}`);
        dot.setAttribute("cx", data.rows ? place : pos);
        dot.setAttribute("cy", data.rows ? pos : place);
        dot.setAttribute("r", 4);
        layer.append(dot);
      });
      svg.append(layer);
      plot.append(tip);
      const scale = svg.clientWidth / WIDTH, room = plot.clientWidth - tip.offsetWidth;
      const x = data.rows ? room : pos * scale + (pos * scale + 14 > room ? -tip.offsetWidth - 14 : 14);
      const y = data.rows ? (pos + 16) * scale : top * scale;
      const edge = plot.getBoundingClientRect();  // beside the curve where there is room, and never off the screen
      const least = 4 - edge.left, most = root.clientWidth - 4 - tip.offsetWidth - edge.left;
      tip.style.transform = `translate(${Math.max(least, Math.min(most, x))}px, ${y}px)`;
      plot.setAttribute("aria-valuenow", at);
      plot.setAttribute("aria-valuetext", `${title.replace("_", " ")}: ${say(data.stops[at])}`);
    };
    const nearest = event => {
      const edge = svg.getBoundingClientRect(), scale = WIDTH / edge.width;
      const here = data.rows ? (event.clientY - edge.top) * scale : (event.clientX - edge.left) * scale;
      let best = 0;
      data.stops.forEach((stop, i) => { if (Math.abs(stop[0] - here) < Math.abs(data.stops[best][0] - here)) best = i; });
      move(best);
    };
    const first = data.stops[0];
    Object.entries({
      role: "slider", tabindex: 0, "aria-label": plot.dataset.label, "aria-valuemin": 0, "aria-valuenow": 0,
      "aria-valuemax": data.stops.length - 1, "aria-orientation": data.rows ? "vertical" : "horizontal",
      "aria-valuetext": `${first[1].replace("_", " ")}: ${say(first)}`,
    }).forEach(([name, value]) => plot.setAttribute(name, value));
    plot.addEventListener("pointermove", nearest);
    plot.addEventListener("pointerdown", nearest);
    plot.addEventListener("pointerleave", event => { if (event.pointerType !== "touch") clear(); });
    document.addEventListener("pointerdown", event => { if (!plot.contains(event.target)) clear(); });
    plot.addEventListener("blur", clear);
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) move(Math.max(at, 0)); });
    plot.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 5, PageUp: -5 }[event.key];
      const end = { Home: 0, End: data.stops.length - 1 }[event.key];
      if (event.key === "Escape") return clear();
      if (step === undefined && end === undefined) return;
      event.preventDefault();
      move(end ?? at + step);
    });
    for (const key of plot.parentElement.querySelectorAll(".legend li")) {
      const mine = [...svg.querySelectorAll(".series")].filter(part => part.dataset.name === key.dataset.name);
      if (!mine.length) continue;
      key.addEventListener("pointerenter", () => { svg.classList.add("dim"); mine.forEach(part => part.classList.add("up")); });
      key.addEventListener("pointerleave", () => { svg.classList.remove("dim"); mine.forEach(part => part.classList.remove("up")); });
    }
  }

  for (const label of document.querySelectorAll(".filter")) {
    const rows = [...label.parentElement.querySelectorAll("tbody tr")];
    label.hidden = false;
    label.querySelector("input").addEventListener("input", event => {
      const words = event.target.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    });
  }

  const links = new Map([...document.querySelectorAll(".head nav a")].map(link => [link.getAttribute("href").slice(1), link]));
  const seen = new IntersectionObserver(entries => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link, id) => {
        const here = id === entry.target.id;
        link.classList.toggle("here", here);
        if (!here) return link.removeAttribute("aria-current");
        link.setAttribute("aria-current", "true");
        link.closest("nav").scrollLeft = link.offsetLeft - 60;
      });
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  document.querySelectorAll("main > section[id]").forEach(section => { if (links.has(section.id)) seen.observe(section); });
})();
