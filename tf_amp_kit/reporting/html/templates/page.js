"use strict";
(() => {
  const search = document.getElementById("search");
  const matches = document.getElementById("matches");

  class View {
    constructor(block) {
      this.table = block.querySelector("table");
      this.body = this.table.tBodies[0];
      this.filter = block.querySelector(".filter input");
      this.empty = block.querySelector(".empty");
      const paths = this.table.dataset.paths;
      this.rows = Array.from(this.body.rows, (row, place) => ({
        row,
        place,
        text: row.textContent.toLowerCase(),
        path: paths === undefined ? null : row.cells[paths].textContent.toLowerCase(),
      }));
      this.headers = Array.from(this.table.tHead.rows[0].cells);
      this.headers.forEach((header, column) => this.addButton(header, column));
      if (this.filter) this.filter.addEventListener("input", update);
    }

    addButton(header, column) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      header.replaceChildren(button);
      button.addEventListener("click", () => this.sort(header, column));
    }

    sort(header, column) {
      const falls = header.getAttribute("aria-sort") === "ascending";
      for (const other of this.headers) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", falls ? "descending" : "ascending");
      const sign = falls ? -1 : 1;
      const keys = this.rows.map(({ row, place }) => {
        const cell = row.cells[column];
        const key = cell.dataset.key;
        const number = key === undefined ? null : Number(key);
        return { row, place, number, text: cell.textContent };
      });
      // Numbers come first either way, then words; equals keep the order of the record.
      keys.sort((one, other) => {
        const isWord = (one.number === null) - (other.number === null);
        if (isWord) return isWord;
        const difference = one.number === null
          ? one.text.localeCompare(other.text)
          : one.number - other.number;
        return sign * difference || one.place - other.place;
      });
      const sorted = document.createDocumentFragment();
      for (const { row } of keys) sorted.append(row);
      this.body.append(sorted);
    }

    show(wanted) {
      const own = this.filter ? this.filter.value.trim().toLowerCase() : "";
      let count = 0;
      for (const { row, text, path } of this.rows) {
        const isShown = text.includes(own) && (path === null || path.includes(wanted));
        row.hidden = !isShown;
        if (isShown) count += 1;
      }
      this.empty.hidden = count > 0;
      return this.table.dataset.paths === undefined ? 0 : count;
    }
  }

  const views = Array.from(document.querySelectorAll("[data-table]"), (block) => new View(block));

  function update() {
    const wanted = search.value.trim().toLowerCase();
    const count = views.reduce((sum, view) => sum + view.show(wanted), 0);
    matches.textContent = wanted ? `${count} ${count === 1 ? "row" : "rows"} of layers` : "";
  }

  search.addEventListener("input", update);
  for (const hidden of document.querySelectorAll(".needs-script")) hidden.hidden = false;
})();
