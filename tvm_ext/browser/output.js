// Outputs: the most likely class, a bar for each value, an image, and the last runs of a stream as lines.
const MOST_BARS = 12;
const MOST_RUNS = 120;

function labelOf(index, port) {
  return port === model.outputs[0] && model.labels[index] !== undefined ? model.labels[index] : String(index);
}

function numberText(value) {
  if (!Number.isFinite(value)) { return String(value); }
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) { return value.toExponential(1); }
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

function element(name, classes, text) {
  const made = document.createElement(name);
  made.className = classes;
  if (text !== undefined) { made.textContent = text; }
  return made;
}

function isPicture(port) {
  const long = port.shape.filter((extent) => extent !== 1);
  return long.length >= 2 && long[0] >= 4 && long[1] >= 2;
}

function outputsOf() {
  const panels = model.outputs.map((port, index) => {
    const panel = byId(`output-${index}`), bars = panel.querySelector(".bars"), canvas = panel.querySelector("canvas");
    return { port, panel, bars, canvas, rows: [], runs: [] };
  });

  function fill(one, values) {
    const probabilities = one.port.probabilities, seen = one.runs.flatMap((run) => [...run]);
    const low = probabilities ? 0 : Math.min(0, ...values, ...seen), high = probabilities ? 1 : Math.max(0, ...values, ...seen);
    const span = high - low || 1, best = values.indexOf(Math.max(...values));
    let order = [...values.keys()];
    if (order.length > MOST_BARS) { order = order.sort((a, b) => values[b] - values[a]).slice(0, MOST_BARS); }
    while (one.rows.length < order.length) {
      const row = element("li", "bar-row"), name = element("span", "bar-name"), track = element("span", "bar-track");
      const bar = element("span", "bar-fill"), value = element("span", "bar-value");
      track.append(bar);
      row.append(name, track, value);
      one.bars.append(row);
      one.rows.push({ row, name, bar, value });
    }
    order.forEach((index, place) => {
      const { row, name, bar, value } = one.rows[place];
      name.textContent = labelOf(index, one.port);
      value.textContent = probabilities && values.length > 1 ? `${(100 * values[index]).toFixed(1)} %` : numberText(values[index]);
      bar.style.left = `${100 * (Math.min(values[index], 0) - low) / span}%`;
      bar.style.width = `${100 * Math.abs(values[index]) / span}%`;
      row.classList.toggle("best", index === best && values.length > 1);
    });
    return { best, probabilities };
  }

  // The largest values of the last runs, each as a line.
  function draw(one) {
    const { canvas, runs } = one, width = 480, height = 110, count = Math.min(one.port.size, 4);
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d"), every = runs.flatMap((run) => [...run.slice(0, count)]);
    const low = Math.min(0, ...every), high = Math.max(1e-6, ...every), names = ["intermediate", "output", "weights", "input"];
    for (let line = 0; line < count; line++) {
      context.beginPath();
      context.lineWidth = 2;
      context.strokeStyle = `rgb(${colour(`${names[line]}-edge`).join(" ")})`;
      runs.forEach((run, at) => {
        const x = width * (at + MOST_RUNS - runs.length) / (MOST_RUNS - 1), y = height - 4 - (height - 8) * (run[line] - low) / (high - low || 1);
        if (at) { context.lineTo(x, y); } else { context.moveTo(x, y); }
      });
      context.stroke();
    }
  }

  return {
    // Shows the values of a run, one array for each output. live: they continue those of the last runs.
    show(outputs, live) {
      panels.forEach((one, index) => {
        const values = [...outputs[index]];
        one.panel.classList.add("filled");
        if (isPicture(one.port)) {
          paintPort(one.canvas, values, one.port);
          one.canvas.hidden = false;
          return;
        }
        if (values.length > MOST_BARS * 40 && !model.labels.length) {
          paintTensor(one.canvas, values, [values.length]);
          one.canvas.hidden = false;
          return;
        }
        one.runs = live ? [...one.runs, Float64Array.from(values).slice(0, MOST_BARS)].slice(-MOST_RUNS) : [];
        const { best, probabilities } = fill(one, values);
        const named = values.length > 1 && index === 0;
        one.panel.querySelector(".best-name").textContent = named ? labelOf(best, one.port) : "";
        one.panel.querySelector("small").textContent = named && probabilities ? `${(100 * values[best]).toFixed(1)} %` : "";
        one.canvas.hidden = one.runs.length < 2;
        if (one.runs.length >= 2) { draw(one); }
      });
    },
  };
}

// Paints the values of a port, an image with its channels as tiles.
function paintPort(canvas, values, port) {
  const channelsFirst = port.shape.length === 4 && port.layout === "NCHW";
  paintTensor(canvas, channelsFirst ? interleaved(values, port.shape) : values, channelsFirst ? nhwc(port.shape) : port.shape);
}

const nhwc = ([images, channels, rows, columns]) => [images, rows, columns, channels];
function interleaved(values, [, channels, rows, columns]) {
  const area = rows * columns;
  return values.map((_, at) => values[(at % channels) * area + Math.floor(at / channels)]);
}
