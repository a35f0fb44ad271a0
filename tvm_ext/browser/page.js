// The page: tabs of input forms, runs of the model, the self-test, and times of layers.
const FORMS = { draw: drawingForm, picture: pictureForm, sound: soundForm, values: valuesForm, vectors: vectorsForm };

function valuesForm(form, panel, submit) {
  const fields = [...panel.querySelectorAll("input")];
  const give = () => submit(form.port, fields.map((field) => Number(field.value)));
  for (const field of fields) { field.addEventListener("input", give); }
  panel.querySelector("button").addEventListener("click", give);
}

function vectorsForm(form, panel, submit, reset, machine, finished) {
  const told = panel.querySelector(".told"), chosen = panel.querySelector("select"), seen = panel.querySelector("canvas");
  machine.samples.forEach((sample, index) => chosen.append(new Option(`sample ${index + 1}`, `s${index}`)));
  for (let vector = 0; vector < machine.numVectors; vector++) {
    chosen.append(new Option(`test vector ${vector + 1}`, `v${vector}`));
  }

  function paint() {
    const index = Number(chosen.value.slice(1)), isSample = chosen.value[0] === "s";
    const values = isSample ? machine.realsOf(machine.samples[index][0], 0) : machine.vectorInputs(index)[0];
    if (values && seen) { paintPort(seen, Array.from(values), model.inputs[0]); }
  }

  function run() {
    const index = Number(chosen.value.slice(1)), isSample = chosen.value[0] === "s";
    const one = (at, copy) => (isSample ? machine.runBytes(machine.samples[at], copy) : machine.runVector(at, copy));
    reset();
    // A model with states takes all inputs up to this one, in order.
    for (let before = 0; model.has_states && before < index; before++) { one(before, false); }
    const { status, copies, milliseconds } = one(index, true);
    finished(status, copies, milliseconds, false);
    const same = isSample ? null : machine.compared(index), isExact = same && same.differing === 0 && status === 0;
    told.classList.toggle("good", Boolean(isExact));
    told.textContent = isSample ? ""
      : !same ? "The package does not know the outputs of its vectors, because it was not verified."
        : status !== 0 ? "The window over time is not full yet, so there are no outputs to compare."
          : isExact ? `All ${same.count} outputs equal the stored outputs of the reference.`
            : `${same.differing} of ${same.count} outputs differ from the stored outputs, by at most ${numberText(same.largest)}.`;
  }

  chosen.addEventListener("change", () => { paint(); run(); });
  panel.querySelector("button").addEventListener("click", run);
  paint();
}

async function start() {
  document.documentElement.classList.toggle("framed", window.top !== window);
  const machine = await machineOf(), inside = insideOf(), outputs = outputsOf(), status = byId("status");
  const held = machine.vectorInputs(0);
  let runs = 0, pending = null;

  function finished(code, copies, milliseconds, live) {
    runs += 1;
    const ready = code === 0;
    status.classList.toggle("bad", !ready && code !== NOT_READY);
    status.textContent = ready ? `Run ${runs.toLocaleString("en")} took ${timeText(milliseconds)}`
      : code === NOT_READY ? `The window over time fills: run ${runs}` : `The run returned status ${code}`;
    if (!ready) { return; }
    outputs.show(machine.outputs(), live);
    inside.take(copies, !live);
  }

  const timeText = (milliseconds) =>
    (milliseconds < 0.2 ? "less than 0.2 ms" : `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`);

  // Runs on values of one port; the others keep those of the first test vector. Many runs are shown once a frame.
  function submit(port, values, live = false) {
    held[port] = values;
    try {
      const shown = !live || pending === null;
      const { status: code, copies, milliseconds } = machine.run(held, shown);
      if (!live) { finished(code, copies, milliseconds, false); return; }
      if (!shown) { runs += 1; if (code === 0) { outputs.show(machine.outputs(), true); } return; }
      pending = requestAnimationFrame(() => { pending = null; });
      finished(code, copies, milliseconds, true);
    } catch (error) {
      status.classList.add("bad");
      status.textContent = `The run stopped: ${error.message}`;
    }
  }
  const reset = () => machine.reset();

  const tabs = [...document.querySelectorAll("[role=tab]")];
  const forms = model.forms.map((form) => {
    const panel = byId(`form-${form.kind}`);
    return FORMS[form.kind](form, panel, submit, reset, machine, finished) || {};
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
    setTimeout(() => {
      const begin = performance.now(), { failed, differing } = machine.selftest();
      const seconds = ((performance.now() - begin) / 1000).toFixed(2);
      told.className = failed ? "told bad" : "told good";
      told.textContent = failed ? `Failed: ${differing} elements differ.` : `Passed: ${model.selftest} in ${seconds} s.`;
      machine.reset();
    }, 30);
  });
  byId("measure").addEventListener("click", () => {
    const told = byId("measure-result");
    told.textContent = "Measuring ...";
    setTimeout(() => {
      const { times, each, runs: count } = machine.measured(600);
      inside.showTimes(times);
      told.textContent = `A run takes ${each.toFixed(each < 1 ? 3 : 2)} ms, on average over ${count} runs.`;
    }, 30);
  });
  if (model.has_states) { byId("reset").addEventListener("click", () => { reset(); status.textContent = "The states are reset."; }); }

  inside.show(0);
  reset();
  // The layers show a run on the first vector until there is an input.
  const { status: code, copies, milliseconds } =
    machine.samples.length ? machine.runBytes(machine.samples[0], true) : machine.runVector(0, true);
  if (["values", "vectors"].includes(model.forms[0].kind)) { finished(code, copies, milliseconds, false); } else { inside.take(copies, true); }
  status.textContent = `A run on the first ${machine.samples.length ? "sample" : "test vector"} took ${timeText(milliseconds)}`;
  reset();
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  byId("status").classList.add("bad");
  byId("status").textContent = `This browser cannot run the page: ${error.message}`;
});
