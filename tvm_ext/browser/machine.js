"use strict";
// The WebAssembly module: ports as arrays of real numbers, runs, and copies of the arenas after each step. A worker runs
// this script, and the page runs it for its functions of elements; both set `model`.
let model;
const ELEMENTS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array,
  float16: Uint16Array, bfloat16: Uint16Array,
};
const MOST_COPIED_BYTES = 64 * 2 ** 20;

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) { bytes[i] = text.charCodeAt(i); }
  return bytes;
}

const word = new DataView(new ArrayBuffer(4));
function singleOf(bits) {
  word.setUint32(0, bits);
  return word.getFloat32(0);
}
// 16-bit floats as their bits: the upper half of a binary32, or IEEE 754 binary16.
const NARROW = {
  bfloat16: {
    real: (bits) => singleOf(bits << 16 >>> 0),
    bits: (real) => {
      if (Number.isNaN(real)) { return 0x7fc0; }
      word.setFloat32(0, real);
      const all = word.getUint32(0);
      return (all + 0x7fff + (all >>> 16 & 1)) >>> 16;
    },
  },
  float16: {
    real: (bits) => {
      const sign = bits & 0x8000 ? -1 : 1, exponent = bits >> 10 & 31, rest = bits & 1023;
      if (exponent === 31) { return rest ? NaN : sign * Infinity; }
      return sign * (exponent ? 2 ** (exponent - 15) * (1 + rest / 1024) : rest * 2 ** -24);
    },
    bits: (real) => {
      const sign = real < 0 || Object.is(real, -0) ? 0x8000 : 0, size = Math.abs(real);
      if (Number.isNaN(real)) { return 0x7e00; }
      if (size >= 65520) { return sign | 0x7c00; }
      const unit = 2 ** Math.max(-24, Math.floor(Math.log2(size || 2 ** -30)) - 10), steps = size / unit;
      const below = Math.floor(steps), rest = steps - below;
      const whole = rest > 0.5 || rest === 0.5 && below % 2 === 1 ? below + 1 : below;
      const exponent = Math.log2(unit) + 25;
      return sign | (whole < 1024 ? whole : (exponent - 1) * 1024 + whole);
    },
  },
};

// Integers of a quantized port. Halves go where the package's rounding says, and everything else as in its header.
function quantized(real, port) {
  const steps = Math.fround(Math.fround(real) / Math.fround(port.scale));
  if (Number.isNaN(steps)) { return port.zero_point; }
  const below = Math.floor(steps), rest = steps - below;
  let whole = below + (rest > 0.5 ? 1 : 0);
  if (rest === 0.5) {
    const up = model.rounding === "onnx" ? below % 2 !== 0 : steps > 0;
    whole = below + (up ? 1 : 0);
  }
  return Math.min(port.high, Math.max(port.low, whole + port.zero_point));
}

function stored(real, port) {
  if (port.scale !== null) { return quantized(real, port); }
  if (port.dtype in NARROW) { return NARROW[port.dtype].bits(real); }
  if (port.dtype.startsWith("float")) { return real; }
  const whole = Math.min(port.high, Math.max(port.low, Math.round(real) || 0));
  return port.dtype.endsWith("64") ? BigInt(whole) : whole;
}

function realOf(element, port) {
  if (port.scale !== null) { return port.scale * (element - port.zero_point); }
  return port.dtype in NARROW ? NARROW[port.dtype].real(element) : Number(element);
}

// The places in memory of a port's elements in the order of the model; a streamed port has its rows first.
function placesOf(port) {
  const places = new Uint32Array(port.size), shape = port.shape, index = shape.map(() => 0);
  for (let i = 0; i < places.length; i++) {
    places[i] = index.reduce((sum, at, axis) => sum + at * port.strides[axis], 0);
    for (let axis = shape.length - 1; axis >= 0 && ++index[axis] === shape[axis]; axis--) { index[axis] = 0; }
  }
  return places;
}

async function moduleOf() {
  const arenas = [];
  const state = { copies: null, times: null, begun: 0 };
  const hooks = {
    arena(number, address) { arenas[number] = address; },
    begins() { if (state.times) { state.begun = performance.now(); } },
    ends(step) {
      if (state.times) { state.times[step] += performance.now() - state.begun; }
      if (state.copies) { state.copies[step] = copyOfArenas(); }
    },
  };
  const { instance } = await WebAssembly.instantiate(bytesOf(model.code), { page: hooks });
  const made = instance.exports, memory = made.memory;
  const copyOfArenas = () =>
    model.memories.map((one, number) => new Uint8Array(memory.buffer, arenas[number], one.bytes).slice());
  const view = (address, port) => new ELEMENTS[port.dtype](memory.buffer, address, port.size);
  const places = new Map([...model.inputs, ...model.outputs].map((port) => [port, placesOf(port)]));
  const total = model.memories.reduce((sum, one) => sum + one.bytes, 0) * model.steps.length;

  function reals(address, port) {
    const elements = view(address, port), order = places.get(port);
    return Float64Array.from(order, (place) => realOf(elements[place], port));
  }
  function bytes(address, port) {
    return new Uint8Array(memory.buffer, address, port.size * ELEMENTS[port.dtype].BYTES_PER_ELEMENT).slice();
  }

  return {
    // Most copies of arenas that a page holds; a larger model runs without them.
    canCopy: total <= MOST_COPIED_BYTES,
    numVectors: made.vectors(),
    reset: () => made.tvm_ext_reset(),
    // Runs on real numbers, one array for each input. Returns the status, the outputs, and the copies of the arenas if
    // asked for.
    run(inputs, copy = false) {
      model.inputs.forEach((port, index) => {
        const address = made.tvm_ext_input(index), order = places.get(port), given = inputs[index];
        if (!address) { return; }
        const elements = view(address, port);
        order.forEach((place, i) => { elements[place] = stored(given[i], port); });
      });
      return this.go(copy);
    },
    // Runs on the bytes of a test vector.
    runVector(vector, copy = false) {
      return this.runBytes(model.inputs.map((port, index) => bytes(made.vector_input(vector, index), port)), copy);
    },
    // Runs on the stored bytes of each input.
    runBytes(stored, copy = false) {
      stored.forEach((given, index) => {
        const address = made.tvm_ext_input(index);
        if (address) { new Uint8Array(memory.buffer).set(given, address); }
      });
      return this.go(copy);
    },
    // Resets the states and runs on a sample, or without samples given on a test vector. A model with states takes all
    // inputs up to this one, in order. same: the comparison with the stored outputs of a vector.
    replay(isSample, index) {
      const one = (at, copy) => (isSample ? this.runBytes(model.samples[at].map(bytesOf), copy) : this.runVector(at, copy));
      made.tvm_ext_reset();
      for (let before = 0; model.has_states && before < index; before++) { one(before, false); }
      return { ...one(index, true), same: isSample ? null : this.compared(index) };
    },
    // Real numbers of the inputs of a sample or a test vector.
    inputsOf(isSample, index) {
      if (!isSample) { return model.inputs.map((port, at) => reals(made.vector_input(index, at), port)); }
      return model.inputs.map((port, at) => {
        const elements = new ELEMENTS[port.dtype](bytesOf(model.samples[index][at]).buffer);
        return Float64Array.from(places.get(port), (place) => realOf(elements[place], port));
      });
    },
    go(copy) {
      state.copies = copy && this.canCopy ? [] : null;
      const begin = performance.now(), status = made.tvm_ext_run(), milliseconds = performance.now() - begin;
      const copies = state.copies;
      state.copies = null;
      const outputs = model.outputs.map((port, index) => reals(made.tvm_ext_output(index), port));
      return { status, copies, milliseconds, outputs };
    },
    // Compares the outputs of the last run with those of a vector, byte by byte; null if the vector has no outputs.
    compared(vector) {
      let differing = 0, count = 0;
      let largest = 0;
      for (const [index, port] of model.outputs.entries()) {
        const expected = made.vector_output(vector, index);
        if (!expected) { return null; }
        const actual = view(made.tvm_ext_output(index), port), wanted = view(expected, port);
        actual.forEach((element, i) => {
          const away = Math.abs(realOf(element, port) - realOf(wanted[i], port));
          if (away > 0) { differing += 1; largest = Math.max(largest, away); }
          count += 1;
        });
      }
      return { differing, count, largest };
    },
    selftest() {
      const begin = performance.now(), failed = made.selftest() !== 0, differing = made.differing();
      made.tvm_ext_reset();
      return { failed, differing, seconds: (performance.now() - begin) / 1000 };
    },
    // Milliseconds of each step, on average over as many runs as fit into some time.
    measured(limit) {
      made.tvm_ext_reset();
      for (let i = 0; i < 3; i++) { this.runVector(0); }
      const untimed = performance.now();
      let plain = 0;
      do { this.runVector(0); plain += 1; } while (performance.now() - untimed < limit / 2 && plain < 2000);
      const each = (performance.now() - untimed) / plain;
      state.times = model.steps.map(() => 0);
      const begin = performance.now();
      let runs = 0;
      do { this.runVector(0); runs += 1; } while (performance.now() - begin < limit && runs < 2000);
      const times = state.times.map((time) => time / runs);
      state.times = null;
      made.tvm_ext_reset();
      return { times, each, runs: runs + plain };
    },
  };
}

// Answers the calls of the page, one after another. The first call brings the model.
function serve() {
  let made;
  self.onmessage = async ({ data: { number, name, given } }) => {
    try {
      if (name === "start") {
        [model] = given;
        made = await moduleOf();
        self.postMessage({ number, value: { canCopy: made.canCopy, numVectors: made.numVectors } });
        return;
      }
      const value = made[name](...given), copies = value && value.copies ? value.copies.flat() : [];
      self.postMessage({ number, value }, copies.map((one) => one.buffer));
    } catch (error) {
      self.postMessage({ number, problem: error.message });
    }
  };
}
