"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const options = {
  mode: "vega-lite", renderer: "svg", ast: true,
  actions: { export: true, source: false, compiled: false, editor: false },
};
for (const place of document.querySelectorAll("[data-chart]")) {
  vegaEmbed(place, charts[place.dataset.chart], options).catch((error) => {
    place.textContent = "This chart could not be drawn: " + error.message;
  });
}
