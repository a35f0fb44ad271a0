// The page: tabs of input forms, runs of the model, the self-test, and times of layers.
const MOST_WAITING = 100;
const FORMS = { draw: drawingForm, picture: pictureForm, sound: soundForm, values: valuesForm, vectors: vectorsForm };

function valuesForm(form, panel, submit) {
  const fields = [...panel.querySelectorAll("input")];
  const give = () => submit(form.port, fields.map((field) => Number(field.value)));
  for (const field of fields) { field.addEventListener("input", give); }
  panel.querySelector("button").addEventListener("click", give);
}

function vectorsForm(form, panel, submit, reset, machine, finished, stopped) {
  const told = panel.querySelector(".told"), chosen = panel.querySelector("select"), seen = panel.querySelector("canvas");
  model.samples.forEach((sample, index) => chosen.append(new Option(`sample ${index + 1}`, `s${index}`)));
  for (let vector = 0; vector < machine.numVectors; vector++) {
    chosen.append(new Option(`test vector ${vector + 1}`, `v${vector}`));
  }

  const choice = () => [chosen.value[0] === "s", Number(chosen.value.slice(1))];
  async function paint() {
    const [values] = await machine.inputsOf(...choice());
    if (values && seen) { paintPort(seen, Array.from(values), model.inputs[0]); }
  }

  async function run() {
    const [isSample, index] = choice(), result = await machine.replay(isSample, index), { status, same } = result;
    finished(result, false);
    const isExact = same && same.differing === 0 && status === 0;
    told.classList.toggle("good", Boolean(isExact));
    told.textContent = isSample ? ""
      : !same ? "The package does not know the outputs of its vectors, because it was not verified."
        : status !== 0 ? "The window over time is not full yet, so there are no outputs to compare."
          : isExact ? `All ${same.count} outputs equal the stored outputs of the reference.`
            : `${same.differing} of ${same.count} outputs differ from the stored outputs, by at most ${numberText(same.largest)}.`;
  }

  chosen.addEventListener("change", () => { paint().catch(stopped); run().catch(stopped); });
  panel.querySelector("button").addEventListener("click", () => run().catch(stopped));
  paint().catch(stopped);
}

async function start() {
  document.documentElement.classList.toggle("framed", window.top !== window);
  const machine = await machineOf(), inside = insideOf(), outputs = outputsOf(), status = byId("status");
  const held = await machine.inputsOf(false, 0);
  let runs = 0, pending = null, waiting = 0, next = null;

  function finished({ status: code, copies, milliseconds, outputs: values }, live) {
    runs += 1;
    const ready = code === 0;
    status.classList.toggle("bad", !ready && code !== NOT_READY);
    status.textContent = ready ? `Run ${runs.toLocaleString("en")} took ${timeText(milliseconds)}`
      : code === NOT_READY ? `The window over time fills: run ${runs}` : `The run returned status ${code}`;
    if (!ready) { return; }
    outputs.show(values, live);
    inside.take(copies, !live);
  }
  function stopped(error) {
    status.classList.add("bad");
    status.textContent = `The run stopped: ${error.message}`;
  }

  const timeText = (milliseconds) =>
    (milliseconds < 0.2 ? "less than 0.2 ms" : `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`);

  // Runs on values of one port; the others keep those of the first test vector. While a run lasts, a model without
  // states waits for the newest values, and one with states takes all of them in order, up to a limit: a model that is
  // slower than its inputs would fall further and further back. Many runs are shown once a frame.
  function submit(port, values, live = false) {
    held[port] = values;
    if (waiting > 0 && !model.has_states) { next = live; return; }
    if (waiting >= MOST_WAITING) {
      stopped(new Error("the model is slower than its inputs, and some of them are left out."));
      return;
    }
    const shown = !live || pending === null;
    if (live && shown) { pending = requestAnimationFrame(() => { pending = null; }); }
    waiting += 1;
    machine.run(held, shown).then((result) => {
      if (shown) { finished(result, live); return; }
      runs += 1;
      if (result.status === 0) { outputs.show(result.outputs, true); }
    }).catch(stopped).finally(() => {
      waiting -= 1;
      if (next !== null) {
        const wasLive = next;
        next = null;
        submit(port, held[port], wasLive);
      }
    });
  }
  const reset = () => machine.reset().catch(stopped);

  const tabs = [...document.querySelectorAll("[role=tab]")];
  const forms = model.forms.map((form) => {
    const panel = byId(`form-${form.kind}`);
    return FORMS[form.kind](form, panel, submit, reset, machine, finished, stopped) || {};
  });
  const choose = (chosen) => tabs.forEach((tab, index) => {
    tab.setAttribute("aria-selected", String(index === chosen));
    tab.tabIndex = index === chosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = index !== chosen;
    if (index !== chosen && forms[index].stop) { forms[index].stop(); }
  });
  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => choose(index));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) { return; }
      const other = (index + step + tabs.length) % tabs.length;
      choose(other);
      tabs[other].focus();
    });
  });
  choose(0);

  byId("selftest").addEventListener("click", () => {
    const told = byId("selftest-result");
    told.textContent = "Running ...";
    machine.selftest().then(({ failed, differing, seconds }) => {
      told.className = failed ? "told bad" : "told good";
      told.textContent = failed ? `Failed: ${differing} elements differ.` : `Passed: ${model.selftest} in ${seconds.toFixed(2)} s.`;
    }).catch(stopped);
  });
  byId("measure").addEventListener("click", () => {
    const told = byId("measure-result");
    told.textContent = "Measuring ...";
    machine.measured(600).then(({ times, each, runs: count }) => {
      inside.showTimes(times);
      told.textContent = `A run takes ${each.toFixed(each < 1 ? 3 : 2)} ms, on average over ${count} runs.`;
    }).catch(stopped);
  });
  if (model.has_states) { byId("reset").addEventListener("click", () => { reset(); status.textContent = "The states are reset."; }); }

  inside.show(0);
  // The layers show a run on the first vector until there is an input.
  const first = await machine.replay(model.samples.length > 0, 0);
  if (runs === 0) {
    if (["values", "vectors"].includes(model.forms[0].kind)) { finished(first, false); } else { inside.take(first.copies, true); }
    status.textContent = `A run on the first ${model.samples.length ? "sample" : "test vector"} took ${timeText(first.milliseconds)}`;
  }
  await machine.reset();
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  byId("status").classList.add("bad");
  byId("status").textContent = `This browser cannot run the page: ${error.message}`;
});
