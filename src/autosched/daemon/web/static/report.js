// The report of a job, in a frame in which no script runs.
import { at, say } from "./dom.js";
import { request } from "./session.js";

const number = Number(location.pathname.split("/")[2]);
const answer = await request(`/api/jobs/${number}/report`);
const text = await answer.text();
document.title = `autosched: report of job ${number}`;
if (answer.ok) at("report").srcdoc = text;
else {
  let why = text;
  try { why = JSON.parse(text).error; } catch { /* it is plain text */ }
  at("problem").hidden = false;
  at("report").hidden = true;
  say(at("problem"), why);
}
document.documentElement.dataset.painted = "yes";
