// How numbers are written, the same as in the terminal (units.py).

export function latency(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [factor, unit] of [[1e6, "µs"], [1e3, "ms"]]) {
    if (seconds * factor < 999.5) return `${digits(seconds * factor)} ${unit}`;
  }
  return `${digits(seconds)} s`;
}

function digits(value) {
  return value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "?";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, "0")}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(whole / 86400)}d${Math.floor((whole % 86400) / 3600)}h`;
}

export function short(seconds) {
  return seconds < 10 ? `${seconds.toFixed(seconds < 1 ? 2 : 1)} s` : duration(seconds);
}

export function gain(first, best) {
  if (!first || !best) return "–";
  const ratio = first / best;
  return `×${ratio >= 99.5 ? ratio.toFixed(0) : ratio >= 9.95 ? ratio.toFixed(1) : ratio.toFixed(2)}`;
}

export function count(number) {
  return number >= 10000 ? `${(number / 1000).toFixed(number >= 100000 ? 0 : 1)}k` : String(number);
}

export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

export function bytes(number) {
  return number >= 2 ** 30 ? `${(number / 2 ** 30).toFixed(1)} GiB` : `${Math.round(number / 2 ** 20)} MiB`;
}

export function clock(unixSeconds) {
  return new Date(unixSeconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}
