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
