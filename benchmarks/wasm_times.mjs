// Times a package's module and onnxruntime-web in turn, in one process: node wasm_times.mjs MODULE [ONNX]. It prints
// JSON: microseconds of a run, the least of all rounds. onnxruntime-web is looked for in the working folder.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [module, onnx] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(fs.readFileSync(module), {});
const ROUNDS = 15;

async function microseconds(run, times) {
    const begin = process.hrtime.bigint();
    for (let i = 0; i < times; i++) {
        await run();
    }
    return Number(process.hrtime.bigint() - begin) / 1e3 / times;
}

async function theirs() {
    const ort = createRequire(path.resolve("package.json"))("onnxruntime-web");
    ort.env.wasm.numThreads = 1;
    const session = await ort.InferenceSession.create(fs.readFileSync(onnx), { executionProviders: ["wasm"] });
    const { type, shape } = session.inputMetadata[0];
    const dims = shape.map((one) => (typeof one === "number" ? one : 1));
    const length = dims.reduce((a, b) => a * b, 1);
    const data = type === "float32" ? new Float32Array(length) : new Int8Array(length);
    const feeds = { [session.inputNames[0]]: new ort.Tensor(type, data, dims) };
    return { run: () => session.run(feeds), version: ort.env.versions.web };
}

const ours = () => instance.exports.tvm_ext_run();
const other = onnx ? await theirs() : null;
const times = { ours: Infinity, onnxruntime_web: Infinity };
for (let round = 0; round < ROUNDS; round++) {
    times.ours = Math.min(times.ours, await microseconds(ours, 100));
    if (other) {
        times.onnxruntime_web = Math.min(times.onnxruntime_web, await microseconds(other.run, 20));
    }
}
console.log(JSON.stringify({ ours: times.ours, onnxruntime_web: other ? times.onnxruntime_web : null, version: other ? other.version : "", node: process.version }));
