// Input by drawing: strokes become an image of the model's size, where a pixel is the ink that covers it.
const PAD = 280;

// Writes an image into an array of the port's elements. pixel(x, y, channel): from 0 for black to 1 for white.
function imageValues(form, port, pixel, low, high) {
  const values = new Float64Array(port.size), axes = form.axes;
  for (let y = 0; y < form.rows; y++) {
    for (let x = 0; x < form.columns; x++) {
      for (let channel = 0; channel < form.channels; channel++) {
        const index = port.shape.map(() => 0);
        let at = y * form.columns + x;
        if (axes.row !== null) {
          index[axes.row] = y;
          index[axes.column] = x;
          index[axes.channel] = channel;
          at = index.reduce((sum, one, axis) => sum * port.shape[axis] + one, 0);
        }
        values[at] = low + (high - low) * pixel(x, y, channel);
      }
    }
  }
  return values;
}

function strokesPath(context, strokes, move) {
  context.lineCap = context.lineJoin = "round";
  context.beginPath();
  for (const stroke of strokes) {
    stroke.forEach((point, i) => {
      const [x, y] = move(point);
      if (i) { context.lineTo(x, y); } else { context.moveTo(x, y); context.lineTo(x + 0.01, y); }
    });
  }
  context.stroke();
}

function drawingForm(form, panel, submit) {
  const port = model.inputs[form.port], pad = panel.querySelector("canvas.pad"), seen = panel.querySelector("canvas.seen");
  const fitted = panel.querySelector("input.fit"), inverted = panel.querySelector("input.invert");
  const fine = 8, wide = document.createElement("canvas");
  wide.width = form.columns * fine;
  wide.height = form.rows * fine;
  pad.width = PAD * form.columns / Math.max(form.rows, form.columns);
  pad.height = PAD * form.rows / Math.max(form.rows, form.columns);
  let strokes = [], pen = [pad.width / 2, pad.height / 2], down = false;

  // The drawing's own box, moved and scaled into the frame as the usual data sets have it.
  function frame() {
    const scale = wide.width / pad.width, points = strokes.flat();
    if (!fitted.checked || points.length < 2) { return ([x, y]) => [x * scale, y * scale]; }
    const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
    const left = Math.min(...xs), right = Math.max(...xs), top = Math.min(...ys), bottom = Math.max(...ys);
    const margin = form.rows >= 20 ? 4.5 * fine : 0.8 * fine, size = Math.max(right - left, bottom - top, 40);
    const zoom = (Math.min(wide.width, wide.height) - 2 * margin) / size;
    return ([x, y]) => [
      wide.width / 2 + (x - (left + right) / 2) * zoom, wide.height / 2 + (y - (top + bottom) / 2) * zoom,
    ];
  }

  function paint() {
    const context = pad.getContext("2d");
    context.clearRect(0, 0, pad.width, pad.height);
    context.strokeStyle = `rgb(${colour("ink").join(" ")})`;
    context.lineWidth = 18;
    if (!strokes.length) {
      context.fillStyle = `rgb(${colour("faint").join(" ")})`;
      context.font = "15px system-ui, sans-serif";
      context.textAlign = "center";
      context.fillText("Draw here", pad.width / 2, pad.height / 2);
    }
    strokesPath(context, strokes, (point) => point);
  }

  function give() {
    const context = wide.getContext("2d", { willReadFrequently: true });
    context.fillStyle = "#000";
    context.fillRect(0, 0, wide.width, wide.height);
    context.strokeStyle = "#fff";
    context.lineWidth = fine * (form.rows >= 20 ? 2.4 : 1.3);
    strokesPath(context, strokes, frame());
    const pixels = context.getImageData(0, 0, wide.width, wide.height).data;
    const covered = (x, y) => {
      let sum = 0;
      for (let v = 0; v < fine; v++) {
        for (let u = 0; u < fine; u++) { sum += pixels[4 * ((y * fine + v) * wide.width + x * fine + u)]; }
      }
      return sum / (255 * fine * fine);
    };
    const ink = (x, y) => (inverted.checked ? 1 - covered(x, y) : covered(x, y));
    painted(seen, form.columns, form.rows, (x, y) => [255, 255, 255].map((white) => white * ink(x, y)));
    submit(form.port, imageValues(form, port, ink, form.low, form.high));
  }

  const place = (event) => {
    const box = pad.getBoundingClientRect();
    return [(event.clientX - box.left) * pad.width / box.width, (event.clientY - box.top) * pad.height / box.height];
  };
  pad.addEventListener("pointerdown", (event) => {
    pad.setPointerCapture(event.pointerId);
    strokes.push([place(event)]);
    paint();
    event.preventDefault();
  });
  pad.addEventListener("pointermove", (event) => {
    if (!pad.hasPointerCapture(event.pointerId)) { return; }
    strokes.at(-1).push(place(event));
    paint();
  });
  pad.addEventListener("pointerup", give);
  // Arrow keys move the pen; the space bar puts it down or lifts it.
  pad.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-8, 0], ArrowRight: [8, 0], ArrowUp: [0, -8], ArrowDown: [0, 8] }[event.key];
    if (event.key === " ") {
      down = !down;
      if (down) { strokes.push([pen]); } else { give(); }
    } else if (step) {
      pen = [pen[0] + step[0], pen[1] + step[1]];
      if (down) { strokes.at(-1).push(pen); }
    } else {
      return;
    }
    paint();
    event.preventDefault();
  });
  panel.querySelector("button.clear").addEventListener("click", () => {
    strokes = [];
    paint();
    give();
  });
  for (const box of [fitted, inverted]) { box.addEventListener("change", give); }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  painted(seen, form.columns, form.rows, () => [0, 0, 0]);
  paint();
}
