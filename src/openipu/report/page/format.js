// Numbers as people read them. Predictions get three digits: more would be a promise.

const digits = (value, places = 3) =>
  value === 0 ? "0" : Number(value.toPrecision(places)).toLocaleString("en", { maximumSignificantDigits: places });

function scaled(value, units, base) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  let number = value, unit = 0;
  while (Math.abs(number) >= base * 0.9995 && unit < units.length - 1) { number /= base; unit += 1; }
  return `${Math.abs(number) >= 1000 ? Math.round(number).toLocaleString("en") : digits(number)} ${units[unit]}`;
}

const bytes = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const flops = (value) => (value ? scaled(value, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000) : "–");
const rate = (value) => scaled(value, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s"], 1000);
const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));
const percent = (value, places = 1) => (Number.isFinite(value) ? `${(100 * value).toFixed(places)} %` : "–");
const plural = (count, one, many) => `${whole(count)} ${count === 1 ? one : many || `${one}s`}`;
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const words = (name) => name.replaceAll("_", " ");

function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${digits(value * 1e9)} ns`;
  if (size < 1e-3) return `${digits(value * 1e6)} µs`;
  if (size < 1) return `${digits(value * 1e3)} ms`;
  return `${digits(value)} s`;
}

function throughput(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? whole(Number(value.toPrecision(3))) : digits(value);
}

// A quantity as number and unit apart, so that the unit can be set smaller.
function split(text) {
  const at = text.lastIndexOf(" ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}
