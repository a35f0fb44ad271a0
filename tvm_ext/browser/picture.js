// Input by a picture: a file or the camera, cut to the model's proportions and scaled to its size.
const RANGES = {
  "0 to 1": (value) => value,
  "-1 to 1": (value) => 2 * value - 1,
  "0 to 255": (value) => 255 * value,
  "-128 to 127": (value) => 255 * value - 128,
  "ImageNet mean and deviation": (value, channel) =>
    (value - [0.485, 0.456, 0.406][channel % 3]) / [0.229, 0.224, 0.225][channel % 3],
};

function pictureForm(form, panel, submit) {
  const port = model.inputs[form.port], seen = panel.querySelector("canvas.seen"), range = panel.querySelector("select");
  const video = panel.querySelector("video"), camera = panel.querySelector("button.camera"), told = panel.querySelector(".told");
  const small = document.createElement("canvas");
  small.width = form.columns;
  small.height = form.rows;
  let last = null, stream = null, live = false;

  function give(source, width, height, continues) {
    if (!width || !height) { return; }
    const context = small.getContext("2d", { willReadFrequently: true });
    const scale = Math.max(form.columns / width, form.rows / height);
    context.imageSmoothingQuality = "high";
    context.fillStyle = "#000";
    context.fillRect(0, 0, form.columns, form.rows);
    context.drawImage(source, (form.columns - width * scale) / 2, (form.rows - height * scale) / 2, width * scale, height * scale);
    last = context.getImageData(0, 0, form.columns, form.rows).data;
    use(continues);
  }

  function use(continues) {
    if (!last) { return; }
    const grey = (at) => 0.299 * last[at] + 0.587 * last[at + 1] + 0.114 * last[at + 2];
    const level = (x, y, channel) => {
      const at = 4 * (y * form.columns + x);
      return (form.channels === 1 ? grey(at) : last[at + channel]) / 255;
    };
    painted(seen, form.columns, form.rows, (x, y) => [0, 1, 2].map((channel) => 255 * level(x, y, channel)));
    const scaled = RANGES[range.value];
    submit(form.port, imageValues(form, port, (x, y, channel) => scaled(level(x, y, channel), channel), 0, 1), continues);
  }

  async function show(file) {
    try {
      const picture = await createImageBitmap(file);
      told.textContent = file.name || "";
      give(picture, picture.width, picture.height, false);
    } catch {
      told.textContent = "This file is not a picture that the browser can read.";
    }
  }

  panel.querySelector("input[type=file]").addEventListener("change", (event) => {
    if (event.target.files[0]) { show(event.target.files[0]); }
  });
  panel.addEventListener("dragover", (event) => event.preventDefault());
  panel.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) { show(event.dataTransfer.files[0]); }
  });
  range.addEventListener("change", () => use(false));

  function stop() {
    live = false;
    video.hidden = true;
    camera.textContent = "Use the camera";
    for (const track of stream ? stream.getTracks() : []) { track.stop(); }
    stream = null;
  }
  camera.addEventListener("click", async () => {
    if (stream) { stop(); return; }
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch (error) {
      told.textContent = `The camera cannot be used: ${error.message || error.name}.`;
      return;
    }
    video.srcObject = stream;
    await video.play();
    video.hidden = false;
    camera.textContent = "Stop the camera";
    live = true;
    const look = () => {
      if (!live) { return; }
      give(video, video.videoWidth, video.videoHeight, true);
      setTimeout(look, 60);
    };
    look();
  });
  return { stop };
}
