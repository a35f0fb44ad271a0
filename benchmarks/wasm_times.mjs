// Times a package's module, LiteRT.js and onnxruntime-web in turn, in one process: node wasm_times.mjs MODULE TFLITE
// [ONNX]. It prints JSON: microseconds of a run, the least of all rounds. Both packages are looked for in the working
// folder. The TFLite file has float inputs and outputs, because LiteRT.js has no tensors of int8.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const [module, tflite, onnx] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(fs.readFileSync(module), {});
const ROUNDS = 40;
const RUNS = 20;

async function microseconds(run, times) {
    const begin = process.hrtime.bigint();
    for (let i = 0; i < times; i++) {
        await run();
    }
    return Number(process.hrtime.bigint() - begin) / 1e3 / times;
}

// LiteRT.js is written for browsers: it loads its module by a script, for which node's functions stand in.
async function litert() {
    const folder = path.resolve("node_modules/@litertjs/core"), wasm = path.join(folder, "wasm/");
    globalThis.self = globalThis;
    globalThis.require = createRequire(path.resolve("package.json"));
    globalThis.__dirname = wasm;
    globalThis.__filename = path.join(wasm, "litert.js");
    globalThis.importScripts = (file) => vm.runInThisContext(fs.readFileSync(file, "utf8"), { filename: file });
    console.info = console.log = console.warn = console.error;
    const { loadLiteRt, loadAndCompile, Tensor } = await import(pathToFileURL(path.join(folder, "dist/index.js")));
    await loadLiteRt(wasm);
    const model = await loadAndCompile(new Uint8Array(fs.readFileSync(tflite)), { accelerator: "wasm" });
    const inputs = model.getInputDetails().map(({ shape }) =>
        new Tensor(new Float32Array(shape.reduce((a, b) => a * b, 1)), [...shape]));
    const run = async () => (await model.run(inputs)).forEach((one) => one.delete());
    return { run, version: JSON.parse(fs.readFileSync(path.join(folder, "package.json"))).version };
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
const other = onnx ? await theirs() : null, lite = await litert();
const times = { ours: Infinity, litert: Infinity, onnxruntime_web: Infinity };
for (let round = 0; round < ROUNDS; round++) {
    times.ours = Math.min(times.ours, await microseconds(ours, RUNS));
    times.litert = Math.min(times.litert, await microseconds(lite.run, RUNS));
    if (other) {
        times.onnxruntime_web = Math.min(times.onnxruntime_web, await microseconds(other.run, RUNS));
    }
}
process.stdout.write(JSON.stringify({
    ours: times.ours, litert: times.litert, onnxruntime_web: other ? times.onnxruntime_web : null,
    versions: { litert: lite.version, onnxruntime_web: other ? other.version : "", node: process.version },
}));
process.exit(0);
