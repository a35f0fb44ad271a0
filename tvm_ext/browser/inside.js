// Inside a run: the step that is shown, the layer's row, the tensor that it wrote, and the bytes of the arenas.
const SVG = "http://www.w3.org/2000/svg";
const MAP = { width: 900, height: 400 };
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

function colour(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}
const mixed = (from, to, part) => from.map((value, i) => value + (to[i] - value) * part);

function painted(canvas, columns, rows, pixel) {
  canvas.width = Math.max(columns, 1);
  canvas.height = Math.max(rows, 1);
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      const shade = pixel(x, y), at = 4 * (y * columns + x);
      if (shade) { image.data.set([...shade, 255], at); }
    }
  }
  context.putImageData(image, 0, 0);
}

// Columns and rows of tiles of this size that come closest to a picture twice as wide as high.
function tiling(count, width, height) {
  let best = { columns: 1, rows: count, loss: Infinity };
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns);
    const ratio = columns * (width + 1) / (rows * (height + 1)), empty = (columns * rows - count) / count;
    const loss = Math.abs(Math.log2(ratio / 2)) + empty;
    if (loss < best.loss) { best = { columns, rows, loss }; }
  }
  return best;
}

// Paints a tensor: a tile for each channel of an image, and the elements of anything else in rows. A single channel that
// is much higher than wide, such as a spectrogram, is painted with time from left to right.
function paintTensor(canvas, values, shape) {
  const long = shape.filter((extent) => extent !== 1);
  const isImage = shape.length === 4 && shape[1] * shape[2] > 1;
  const [height, width, channels] = isImage ? shape.slice(1) : long.length === 2 ? [long[0], long[1], 1] : [1, 1, values.length];
  if (channels === 1 && height > 1.5 * width) {
    const turned = values.map((_, at) => values[(at % height) * width + Math.floor(at / height)]);
    paintTensor(canvas, turned, [1, width, height, 1]);
    return;
  }
  const { columns, rows } = tiling(channels, width, height);
  const gap = width * height > 1 ? 1 : 0;
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0) || 1;
  const none = colour("panel"), positive = colour("intermediate-edge"), negative = colour("output-edge");
  painted(canvas, columns * (width + gap) - gap, rows * (height + gap) - gap, (x, y) => {
    const tileX = Math.floor(x / (width + gap)), tileY = Math.floor(y / (height + gap));
    const inX = x - tileX * (width + gap), inY = y - tileY * (height + gap), channel = tileY * columns + tileX;
    if (inX >= width || inY >= height || channel >= channels) { return null; }
    const value = values[(inY * width + inX) * channels + channel];
    return mixed(none, value < 0 ? negative : positive, Math.min(1, Math.abs(value) / largest) ** 0.7);
  });
}

function valuesOf(tensor, copies) {
  const bytes = copies[tensor.memory], elements = ELEMENTS[tensor.dtype];
  if (!elements || !tensor.whole) { return null; }
  const from = bytes.slice(tensor.offset, tensor.offset + tensor.size * elements.BYTES_PER_ELEMENT);
  return Float64Array.from(new elements(from.buffer), (element) => realOf(element, tensor));
}

// Paints every byte of an arena: in the colour of the tensor that is alive there, and the stronger the larger it is.
function paintArena(canvas, bytes, alive) {
  const step = Math.ceil(bytes.length / 65536), count = Math.ceil(bytes.length / step);
  const columns = Math.max(16, 8 * Math.ceil(Math.sqrt(count * 1.4) / 8)), rows = Math.ceil(count / columns);
  const owner = new Array(count).fill(null);
  for (const tensor of alive) {
    const edge = colour(`${tensor.kind}-edge`), area = colour(tensor.kind);
    owner.fill([area, edge], Math.floor(tensor.offset / step), Math.ceil((tensor.offset + tensor.bytes) / step));
  }
  const empty = colour("panel"), ink = colour("grid");
  painted(canvas, columns, rows, (x, y) => {
    const at = y * columns + x;
    if (at >= count) { return null; }
    const byte = bytes[at * step], size = Math.abs(byte << 24 >> 24) / 128;
    return owner[at] ? mixed(owner[at][0], owner[at][1], Math.sqrt(size)) : mixed(empty, ink, size);
  });
}

function insideOf() {
  const rows = [...document.querySelectorAll("#layers button")], slider = byId("step"), play = byId("play");
  const drawings = [...document.querySelectorAll("figure.memory svg.map")];
  const cursors = drawings.map((drawing) => {
    const cursor = document.createElementNS(SVG, "rect");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("y", -4);
    cursor.setAttribute("height", MAP.height + 8);
    cursor.setAttribute("width", MAP.width / model.steps.length);
    drawing.prepend(cursor);
    return cursor;
  });
  for (const row of rows) { row.querySelector(".part").style.width = `${100 * row.dataset.part}%`; }
  let copies = null, shown = model.steps.length - 1, timer = 0;

  function show(step) {
    shown = step;
    const one = model.steps[step];
    slider.value = step;
    slider.setAttribute("aria-valuetext", `step ${step}, ${one.name}`);
    rows.forEach((row, index) => {
      row.classList.toggle("done", index < step);
      if (index === step) { row.setAttribute("aria-current", "step"); } else { row.removeAttribute("aria-current"); }
    });
    const list = byId("layers"), row = rows[step];
    list.scrollTop = row.offsetTop - list.offsetTop - (list.clientHeight - row.clientHeight) / 2;
    byId("step-name").textContent = `${step + 1} of ${model.steps.length}: ${one.name}`;
    byId("step-kernel").textContent = `${one.kernel} writes ${one.writes || "nothing"}`;
    drawings.forEach((drawing, number) => {
      cursors[number].setAttribute("x", MAP.width * step / model.steps.length);
      for (const box of drawing.querySelectorAll("rect.box")) {
        const tensor = model.tensors.find((each) => each.name === box.dataset.name && each.map === number);
        const lives = tensor !== undefined && tensor.begin <= step && step < tensor.end;
        box.parentElement.classList.toggle("asleep", !lives);
      }
    });
    paint();
  }

  function paint() {
    const one = model.steps[shown], canvas = byId("tensor"), copied = copies ? copies[shown] : null;
    const tensor = one.outputs.find((each) => each.memory !== null && each.whole);
    const values = copied && tensor ? valuesOf(tensor, copied) : null;
    byId("no-tensor").hidden = values !== null;
    canvas.hidden = values === null;
    if (values) {
      paintTensor(canvas, values, tensor.shape);
      canvas.setAttribute("aria-label", `Values of ${tensor.name} after step ${shown + 1}`);
    }
    byId("tensor-name").textContent = tensor ? `${tensor.name}, ${tensor.dtype}[${tensor.shape.join(", ")}]` : "";
    byId("no-tensor").textContent = !copies ? "Run the model to see what its layers compute."
      : !copied ? "This layer did not run: a branch of the model left it out."
        : one.outputs.some((each) => each.memory !== null) ? "The rows of this tensor overwrite each other, so it is never complete."
          : "This layer writes to an output outside of the arena.";
    model.memories.forEach((memory, number) => {
      const arena = byId(`arena-${number}`);
      const alive = model.tensors.filter((each) => each.memory === number && each.begin <= shown && shown < each.end);
      const bytes = copied ? copied[number] : new Uint8Array(memory.bytes);
      paintArena(arena, bytes, alive);
      const live = new Uint8Array(memory.bytes);
      alive.forEach((each) => live.fill(1, each.offset, each.offset + each.bytes));
      const used = live.reduce((sum, byte) => sum + byte, 0);
      byId(`alive-${number}`).textContent =
        `${used.toLocaleString("en")} of ${memory.bytes.toLocaleString("en")} B hold live tensors in this step`;
    });
  }

  function stop() {
    clearTimeout(timer);
    timer = 0;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  }
  function start(from) {
    stop();
    play.textContent = "Pause";
    play.setAttribute("aria-pressed", "true");
    const each = Math.min(600, Math.max(60, 4000 / model.steps.length));
    const next = (step) => {
      show(step);
      timer = step + 1 < model.steps.length ? setTimeout(() => next(step + 1), each) : setTimeout(stop, each);
    };
    next(from);
  }

  play.addEventListener("click", () => {
    if (timer) { stop(); } else { start(shown + 1 < model.steps.length ? shown + 1 : 0); }
  });
  byId("back").addEventListener("click", () => { stop(); show(Math.max(0, shown - 1)); });
  byId("forth").addEventListener("click", () => { stop(); show(Math.min(model.steps.length - 1, shown + 1)); });
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  rows.forEach((row, index) => row.addEventListener("click", () => { stop(); show(index); }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  return {
    // Takes the copies of a run. animated: the steps light up one after another, unless the system asks for calm.
    take(taken, animated) {
      copies = taken;
      if (animated && !calm && taken) { start(0); } else if (!timer) { show(shown); }
    },
    showTimes(times) {
      const most = Math.max(...times, 1e-9);
      rows.forEach((row, index) => {
        row.querySelector(".part").style.width = `${100 * times[index] / most}%`;
        row.querySelector(".time").textContent = `${(1000 * times[index]).toFixed(times[index] < 0.01 ? 1 : 0)} µs`;
      });
    },
    show,
  };
}
