// Input by sound: the microphone, a file, or a tone, at the model's sample rate and in the samples that a run takes.
const CHUNK = 1024;
const TAPS = 24;
const TONE = { begin: 0.9, seconds: 0.34, low: 560, high: 3200 };
const WINDOW_STEP_SECONDS = 0.2;
const SHOWN_SAMPLES = 8000;

// Converts sample rates: each sample is a sum over a windowed sinc, which cuts off what the lower rate cannot hold.
function resamplerOf(from, to) {
  const ratio = from / to, cut = Math.min(1, to / from), reach = TAPS / cut;
  let kept = new Float32Array(0), begin = 0, next = 0;
  return (samples) => {
    if (from === to) { return samples; }
    const all = new Float32Array(kept.length + samples.length), made = [];
    all.set(kept);
    all.set(samples, kept.length);
    while (next + reach < begin + all.length) {
      let sum = 0;
      for (let i = Math.max(begin, Math.ceil(next - reach)); i <= next + reach; i++) {
        const at = (i - next) * cut, angle = Math.PI * at;
        const window = 0.5 + 0.5 * Math.cos(angle / TAPS);
        sum += all[i - begin] * cut * window * (angle === 0 ? 1 : Math.sin(angle) / angle);
      }
      made.push(sum);
      next += ratio;
    }
    const done = Math.max(0, Math.min(all.length, Math.floor(next - reach) - begin));
    kept = all.slice(done);
    begin += done;
    return Float32Array.from(made);
  };
}

function soundForm(form, panel, submit, reset) {
  const port = model.inputs[form.port], told = panel.querySelector(".told"), wave = panel.querySelector("canvas.wave");
  const microphone = panel.querySelector("button.microphone"), rate = panel.querySelector("select.rate");
  const streams = model.has_states, loud = Math.max(Math.abs(form.low), Math.abs(form.high));
  let context = null, source = null, resampled = null, queue = [], recent = new Float32Array(0), fresh = 0;

  function take(samples) {
    const came = resampled(samples);
    recent = joined(recent, came).slice(-Math.max(SHOWN_SAMPLES, form.samples));
    if (streams) {
      queue.push(...came);
      while (queue.length >= form.samples) { submit(form.port, queue.splice(0, form.samples).map((one) => one * loud), true); }
    } else {
      fresh += came.length;
      if (fresh >= WINDOW_STEP_SECONDS * rateOf() && recent.length >= form.samples) {
        fresh = 0;
        submit(form.port, Array.from(recent.slice(-form.samples), (one) => one * loud), true);
      }
    }
  }

  const joined = (one, other) => {
    const all = new Float32Array(one.length + other.length);
    all.set(one);
    all.set(other, one.length);
    return all;
  };
  const rateOf = () => Number(rate.value);

  function paint() {
    const pen = wave.getContext("2d"), width = wave.width = 480, height = wave.height = 90;
    const shown = recent.slice(-SHOWN_SAMPLES), each = SHOWN_SAMPLES / width;
    pen.fillStyle = `rgb(${colour("intermediate-edge").join(" ")})`;
    for (let x = 0; x < width; x++) {
      const from = Math.floor(x * each) - (SHOWN_SAMPLES - shown.length), part = shown.slice(Math.max(0, from), Math.max(0, from + each));
      const peak = part.reduce((most, one) => Math.max(most, Math.abs(one)), 0.005);
      const size = Math.min(1, Math.sqrt(peak)) * height;
      pen.fillRect(x, (height - size) / 2, 1, size);
    }
    if (context) { requestAnimationFrame(paint); }
  }

  async function begin(make) {
    stop();
    reset();
    queue = [];
    recent = new Float32Array(0);
    context = new AudioContext();
    resampled = resamplerOf(context.sampleRate, rateOf());
    // An audio worklet would need a script from a URL, which neither a local file nor the page's policy allows.
    const node = context.createScriptProcessor(CHUNK, 1, 1);
    node.onaudioprocess = (event) => { if (context) { take(event.inputBuffer.getChannelData(0).slice()); } };
    node.connect(context.destination);
    source = await make(context, node);
    paint();
  }

  function stop() {
    if (source && source.stop) { source.stop(); }
    if (context) { context.close(); }
    context = source = null;
    microphone.textContent = "Listen to the microphone";
    microphone.setAttribute("aria-pressed", "false");
  }

  const attempt = (make, words) => async () => {
    try {
      await begin(make);
      told.textContent = words;
    } catch (error) {
      stop();
      told.textContent = `Sound cannot be used: ${error.message || error.name}.`;
    }
  };
  const listen = attempt(async (audio, node) => {
    const stream = await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
    audio.createMediaStreamSource(stream).connect(node);
    microphone.textContent = "Stop listening";
    microphone.setAttribute("aria-pressed", "true");
    return { stop: () => stream.getTracks().forEach((track) => track.stop()) };
  }, "Listening. The sound stays in this page.");
  microphone.addEventListener("click", () => {
    if (context) { stop(); told.textContent = "Stopped."; } else { listen(); }
  });

  // Plays samples through the model, and through the loudspeaker.
  const played = (buffer) => attempt(async (audio, node) => {
    const player = audio.createBufferSource();
    player.buffer = buffer;
    player.connect(node);
    player.connect(audio.destination);
    player.onended = () => setTimeout(() => { if (source === player) { stop(); told.textContent = "Played."; } }, 400);
    player.start();
    return player;
  }, "Playing.");
  panel.querySelector("input[type=file]").addEventListener("change", async (event) => {
    const file = event.target.files[0];
    if (!file) { return; }
    try {
      const reader = new AudioContext(), buffer = await reader.decodeAudioData(await file.arrayBuffer());
      reader.close();
      await played(buffer)();
    } catch (error) {
      told.textContent = `The file cannot be read: ${error.message || error.name}.`;
    }
  });
  // A tone that rises within a third of a second, between two pauses, to try a model without a microphone.
  panel.querySelector("button.tone").addEventListener("click", async () => {
    const heard = 48000, buffer = new AudioBuffer({ length: 1.6 * heard, sampleRate: heard }), samples = buffer.getChannelData(0);
    let phase = 0;
    for (let i = 0; i < samples.length; i++) {
      const part = (i / heard - TONE.begin) / TONE.seconds;
      phase += 2 * Math.PI * TONE.low * (TONE.high / TONE.low) ** Math.min(1, Math.max(0, part)) / heard;
      samples[i] = (part > 0 && part < 1 ? 0.3 * Math.sin(phase) : 0) + 0.002 * (Math.random() - 0.5);
    }
    await played(buffer)();
  });
  rate.addEventListener("change", stop);
  paint();
  return { stop };
}
