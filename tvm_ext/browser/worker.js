// The page's side of the worker that runs the model: calls of its functions, whose results are promises.
const byId = (id) => document.getElementById(id);
model = JSON.parse(byId("model").textContent);
const NOT_READY = model.not_ready;

async function machineOf() {
  const waiting = new Map();
  const script = new Blob([byId("machine").textContent, "serve();"], { type: "text/javascript" });
  const worker = new Worker(URL.createObjectURL(script));
  worker.onmessage = ({ data: { number, value, problem } }) => {
    const { resolve, reject } = waiting.get(number);
    waiting.delete(number);
    if (problem === undefined) { resolve(value); } else { reject(new Error(problem)); }
  };
  worker.onerror = (event) => {
    for (const { reject } of waiting.values()) { reject(new Error(event.message || "no worker starts here")); }
    waiting.clear();
  };
  let calls = 0;
  const ask = (name, ...given) => new Promise((resolve, reject) => {
    calls += 1;
    waiting.set(calls, { resolve, reject });
    worker.postMessage({ number: calls, name, given });
  });
  const functions = ["reset", "run", "replay", "inputsOf", "selftest", "measured"];
  const facts = await ask("start", model);
  return { ...facts, ...Object.fromEntries(functions.map((name) => [name, (...given) => ask(name, ...given)])) };
}
