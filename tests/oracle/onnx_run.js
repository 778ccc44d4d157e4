// Runs FOLDER/NAME.onnx on FOLDER/NAME.x.bin with onnxruntime and writes FOLDER/NAME.out.bin: see onnx_models.py.
const fs = require("fs");
const path = require("path");
const folder = process.argv[2];
const ort = require(path.join(folder, "node_modules", "onnxruntime-node"));

async function main() {
    const models = JSON.parse(fs.readFileSync(path.join(folder, "models.json")));
    for (const [name, [shape, isInteger]] of Object.entries(models)) {
        const session = await ort.InferenceSession.create(path.join(folder, name + ".onnx"));
        const bytes = fs.readFileSync(path.join(folder, name + ".x.bin"));
        const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
        const tensor = isInteger ? new ort.Tensor("int64", new BigInt64Array(buffer), shape)
                                 : new ort.Tensor("float32", new Float32Array(buffer), shape);
        const { output } = await session.run({ input: tensor });
        fs.writeFileSync(path.join(folder, name + ".out.bin"), Buffer.from(output.data.buffer, output.data.byteOffset, output.data.byteLength));
    }
}
main().catch((error) => { console.error(String(error)); process.exit(1); });
