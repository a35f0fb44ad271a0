"use strict";
// Facts of what is pointed at or focused, below its picture.
for (const picture of document.querySelectorAll("figure")) {
  const told = picture.querySelector(".told");
  const tell = (event) => {
    const mark = event.target.closest("g.mark");
    if (mark) { told.textContent = mark.querySelector("title").textContent; }
  };
  if (told) { picture.addEventListener("pointerover", tell); picture.addEventListener("focusin", tell); }
}
// Steps of a graph by name, and its size.
for (const drawing of document.querySelectorAll("figure.drawing")) {
  const picture = drawing.querySelector("svg.graph"), place = drawing.querySelector(".scroll"), found = drawing.querySelector(".found");
  const width = Number(picture.getAttribute("width")), height = Number(picture.getAttribute("height"));
  let scale = 1;
  for (const button of drawing.querySelectorAll("button.zoom")) {
    button.addEventListener("click", () => {
      scale = Math.min(4, Math.max(0.1, scale * Number(button.dataset.by)));
      picture.setAttribute("width", width * scale);
      picture.setAttribute("height", height * scale);
    });
  }
  drawing.querySelector("input.find").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase(), hits = [];
    for (const mark of picture.querySelectorAll("g.mark")) {
      const is = wanted === "" ? false : mark.querySelector("title").textContent.toLowerCase().includes(wanted);
      mark.classList.toggle("hit", is);
      if (is) { hits.push(mark); }
    }
    found.textContent = wanted === "" ? "" : `${hits.length} found`;
    if (hits.length > 0) {
      const seen = hits[0].getBoundingClientRect(), frame = place.getBoundingClientRect();
      place.scrollTop += seen.top - frame.top - frame.height / 3;
      place.scrollLeft += seen.left - frame.left - frame.width / 3;
    }
  });
}
// Rows by the column whose heading is pressed, the other way round when pressed again.
for (const button of document.querySelectorAll("button.sort")) {
  button.addEventListener("click", () => {
    const heading = button.parentElement, body = button.closest("table").tBodies[0];
    const at = [...heading.parentElement.children].indexOf(heading), up = heading.ariaSort === "descending" ? 1 : -1;
    const key = (row) => row.cells[at].textContent.replaceAll(",", "");
    const order = (a, b) => up * key(a).localeCompare(key(b), "en", { numeric: true });
    body.append(...[...body.rows].sort(order));
    for (const other of heading.parentElement.children) { other.ariaSort = "none"; }
    heading.ariaSort = up === 1 ? "ascending" : "descending";
  });
}
