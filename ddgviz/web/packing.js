// Unpacks passes as packing.py describes them.

const STATUSES = ["settled", "changed", "draft", "masked"];
const TYPES = { b: Uint8Array, h: Uint16Array, i: Int32Array, f: Float32Array };

// Takes columns off some bytes, one after the other.
export function reader(view) {
  let at = 0;
  return (type, count) => {
    const from = view.byteOffset + at;
    at += count * TYPES[type].BYTES_PER_ELEMENT;
    return Array.from(new TYPES[type](view.buffer.slice(from, view.byteOffset + at)));
  };
}

export function unpack({ call, n, first, origins, wide, has, lanes = null }, take) {
  const less = (values) => values.map((value) => value - 1);
  const slots = first === null ? take("i", n) : Array.from({ length: n }, (_, index) => first + index);
  const ids = wide ? "i" : "h";
  const [drafts, tokens, codes] = [less(take(ids, n)), less(take(ids, n)), take("b", n)];
  const given = (letter, read) => (has.includes(letter) ? read() : null);
  const floats = () => take("f", n).map((value) => (value === value ? value : null));
  const counts = () => less(take("i", n)).map((value) => (value < 0 ? null : value));
  return {
    call, slots, drafts, tokens, lanes, status: codes.map((code) => STATUSES[code & 3]),
    origins: codes.map((code) => origins[code >> 2] ?? "other"), probabilities: given("p", floats), margins: given("m", floats),
    num_active: given("a", counts), cluster: given("c", counts), sources: given("s", counts),
  };
}
