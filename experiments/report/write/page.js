// Sorting by a column, a row's runs, and variants brought forward or shown alone. The page is whole without it.
(function () {
  "use strict";
  document.documentElement.classList.add("js");
  const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));

  all("th[data-sort]").forEach((head) => head.addEventListener("click", () => {
    const table = head.closest("table"), column = head.cellIndex;
    const rising = head.getAttribute("aria-sort") === "descending";
    all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const value = (body) => {
      const cell = body.rows[0].cells[column];
      return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent.trim();
    };
    const bodies = Array.from(table.tBodies).filter((body) => !body.dataset.last);
    const known = (v) => typeof v === "number";
    bodies.sort((one, two) => {
      const a = value(one), b = value(two);
      if (known(a) !== known(b)) return known(a) ? -1 : 1;
      const order = known(a) ? a - b : a.localeCompare(b);
      return rising ? order : -order;
    });
    const last = Array.from(table.tBodies).filter((body) => body.dataset.last);
    bodies.concat(last).forEach((body) => table.appendChild(body));
  }));

  // A click on an entry of a legend shows that one alone, more clicks those together; the last one off shows all.
  const sheet = document.head.appendChild(document.createElement("style")).sheet;
  const series = all(".series").map((element) => ({
    element, figure: element.closest("figure"), panel: element.closest(".panel"),
    variant: (/\bs(\d+)\b/.exec(element.getAttribute("class")) || [])[1],
    group: (/\bg(\d+)\b/.exec(element.getAttribute("class")) || [])[1],
  }));
  const variants = new Set(), groups = new Map();
  const out = (chosen, one) => one !== undefined && chosen !== undefined && chosen.size > 0 && !chosen.has(one);
  const filter = () => {
    const shown = new Set();
    series.forEach((each) => {
      const off = out(variants, each.variant) || out(groups.get(each.figure), each.group);
      each.element.classList.toggle("off", off);
      if (!off) shown.add(each.panel);
    });
    series.forEach((each) => each.panel.classList.toggle("off", !shown.has(each.panel)));
    all("tr.line").forEach((row) => row.classList.toggle("off", out(variants, row.dataset.variant)));
    all(".key button").forEach((other) => other.setAttribute("aria-pressed", String(variants.has(other.dataset.variant))));
  };
  const turn = (chosen, one) => chosen.delete(one) || chosen.add(one);
  const show = (number) => {
    while (sheet.cssRules.length) sheet.deleteRule(0);
    document.body.classList.toggle("focus", number !== null);
    all("tr.line").forEach((row) => row.classList.toggle("lit", number !== null && row.dataset.variant === number));
    if (number !== null) sheet.insertRule(".focus .series.s" + number + " { opacity: 1 }");
  };
  all(".key button").forEach((button) => {
    const number = button.dataset.variant;
    button.addEventListener("mouseenter", () => show(number));
    button.addEventListener("mouseleave", () => show(null));
    button.addEventListener("click", () => { turn(variants, number); filter(); });
  });
  all(".legend button").forEach((button) => {
    const figure = button.closest("figure");
    button.addEventListener("click", () => {
      if (!groups.has(figure)) groups.set(figure, new Set());
      turn(groups.get(figure), button.dataset.group);
      button.setAttribute("aria-pressed", String(groups.get(figure).has(button.dataset.group)));
      filter();
    });
  });

  all("tr.line").forEach((row) => {
    const runs = row.parentElement.querySelector("details");
    const turn = () => {
      runs.open = !runs.open;
      row.classList.toggle("open", runs.open);
      row.setAttribute("aria-expanded", String(runs.open));
    };
    row.tabIndex = 0;
    row.setAttribute("aria-expanded", "false");
    row.addEventListener("click", (event) => event.target.closest("a") || turn());
    row.addEventListener("keydown", (event) => event.key === "Enter" && turn());
  });
})();
