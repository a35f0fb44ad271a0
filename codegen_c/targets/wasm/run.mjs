// Runs the firmware of a package in node: node board/run.mjs PROGRAM [WORDS...]. The program may open in.bin and out.bin
// in the working folder, and nothing else of this machine.
import fs from "node:fs";

const [program, ...words] = process.argv.slice(2);
const files = ["in.bin", "out.bin"];
const handles = [null];
let memory;

function bytesAt(place, count) {
    return new Uint8Array(memory.buffer, place, count);
}

function textAt(place) {
    const bytes = new Uint8Array(memory.buffer, place);
    return Buffer.from(bytes.subarray(0, bytes.indexOf(0))).toString();
}

function open(name, mode) {
    if (!files.includes(name) || (mode !== 5 && !fs.existsSync(name))) {
        return -1;
    }
    handles.push({ file: fs.openSync(name, mode === 5 ? "w" : "r"), at: 0 });
    return handles.length - 1;
}

function read(handle, place, count) {
    const done = fs.readSync(handle.file, bytesAt(place, count), 0, count, handle.at);
    handle.at += done;
    return count - done;
}

function write(handle, place, count) {
    const done = fs.writeSync(handle.file, bytesAt(place, count), 0, count, handle.at);
    handle.at += done;
    return count - done;
}

function commandLine(place, capacity) {
    const text = Buffer.from(words.join(" ") + "\0");
    if (words.length === 0 || text.length > capacity) {
        return -1;
    }
    bytesAt(place, text.length).set(text);
    return 0;
}

function semihosting(operation, place) {
    const view = new DataView(memory.buffer);
    const word = (index) => view.getUint32(place + 4 * index, true);
    switch (operation) {
        case 0x01: return open(Buffer.from(bytesAt(word(0), word(2))).toString(), word(1));
        case 0x02: fs.closeSync(handles[word(0)].file); return 0;
        case 0x04: process.stdout.write(textAt(place)); return 0;
        case 0x05: return write(handles[word(0)], word(1), word(2));
        case 0x06: return read(handles[word(0)], word(1), word(2));
        case 0x0a: handles[word(0)].at = word(1); return 0;
        case 0x0c: return fs.fstatSync(handles[word(0)].file).size;
        case 0x15: return commandLine(word(0), word(1));
        case 0x20: process.exit(word(1));
        default: return -1;
    }
}

const provided = { tvm_ext: { semihosting, instructions: () => 0n } };
const { instance } = await WebAssembly.instantiate(fs.readFileSync(program), provided);
memory = instance.exports.memory;
instance.exports._start();
