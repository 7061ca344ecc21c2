// Parts without sockets: what is remembered for a lost connection, subtitles, metrics, resampling, and the
// page's own texts.

import assert from "node:assert/strict";
import { test } from "node:test";

import { cues, parseMetrics, quantile, toSRT, toVTT, total } from "../../../client/js/sensorium.js";
import { eventsOf } from "../../../client/js/http.js";
import { Resampler } from "../../../client/js/resampler.js";
import { ResumeRefusedError, Resumption, waits } from "../../../client/js/resume.js";
import { chatCode, filesCode, liveCode } from "../../../actors/http/console/static/snippets.js";

const SESSION = { id: "sess_1", resume_token: "t", limits: { resume_grace_s: 30 } };

function resumption(maxBytes = 10) {
  const made = new Resumption({ maxBytes });
  made.arrived({ type: "session.created", session: SESSION, server_event_seq: 1 });
  return made;
}

test("the frames that the server has not taken in are sent again", () => {
  const made = resumption();
  for (const frame of ["one", "two", new ArrayBuffer(3)]) made.sent(frame);
  assert.deepEqual(made.answer({ type: "session.created" }), null);
  assert.deepEqual(made.answer({ type: "session.resumed", received_events: 1 }), ["two", new ArrayBuffer(3)]);
  assert.deepEqual(made.answer({ type: "session.resumed", received_events: 3 }), []);
});

test("what is kept is bounded, and what is not kept cannot be resumed", () => {
  const made = resumption();
  for (const frame of ["first", "second", "third"]) made.sent(frame);
  assert.equal(made.numBytes, 5);
  assert.deepEqual(made.answer({ type: "session.resumed", received_events: 2 }), ["third"]);
  assert.throws(() => made.answer({ type: "session.resumed", received_events: 1 }), (error) => error.isFinal);
});

test("events that arrived before are dropped", () => {
  const made = resumption();
  assert.equal(made.arrived({ type: "a", server_event_seq: 2 }), true);
  assert.equal(made.arrived({ type: "a", server_event_seq: 2 }), false);
  assert.equal(made.arrived({ type: "other server's" }), true);
  assert.equal(JSON.parse(made.request()).after_seq, 2);
});

test("a refusal says whether another attempt may help", () => {
  for (const [code, isFinal] of [["resume_gap", true], ["too_many_sessions", false]]) {
    const refused = () => resumption().answer({ type: "error", error: { code, message: "no" } });
    assert.throws(refused, (error) => error instanceof ResumeRefusedError && error.isFinal === isFinal);
  }
});

test("a connection that breaks at the same frame again and again is given up", () => {
  const made = resumption();
  made.sent("frame");
  const answer = { type: "session.resumed", received_events: 0 };
  for (let time = 0; time < 5; time++) made.answer(answer);
  assert.throws(() => made.answer(answer), /same place/);
});

test("attempts fill the grace and no more", () => {
  const all = [...waits(30, () => 0.5)];
  assert.equal(all[0], 0);
  const sum = all.reduce((a, b) => a + b);
  assert.ok(sum <= 30 && sum > 25, String(sum));
  assert.deepEqual([...waits(0)], [0]);
});

async function eventsIn(...pieces) {
  const found = [];
  for await (const event of eventsOf({ pieces, headers: new Map() })) found.push(event);
  return found;
}

test("a stream of events is the same however it is cut", async () => {
  const text = ': keep-alive\n\nevent: a\r\ndata: {"a": "ä\\n"}\r\n\r\ndata: {"b": 2}\n\ndata: [DONE]\n\ndata: {"never": 1}\n';
  const whole = await eventsIn(text);
  assert.deepEqual(whole, [{ a: "ä\n" }, { b: 2 }]);
  assert.deepEqual(await eventsIn(...text), whole);
  for (let at = 1; at < text.length; at++) assert.deepEqual(await eventsIn(text.slice(0, at), text.slice(at)), whole);
});

test("an error in a stream is thrown", async () => {
  const stream = eventsIn('data: {"error": {"message": "gone", "code": "draining"}}\n\n');
  await assert.rejects(stream, (error) => error.name === "APIError" && error.code === "draining");
});

const word = (text, start, end) => ({ word: ` ${text}`, start, end });

test("subtitles end with sentences, and where they are full", () => {
  const words = [word("Good", 0, 0.4), word("morning.", 0.4, 1), word("How", 1.5, 1.7), word("are", 1.7, 1.8), word("you?", 1.8, 2.25)];
  const found = cues(words);
  assert.deepEqual(found, [{ start: 0, end: 1, text: "Good morning." }, { start: 1.5, end: 2.25, text: "How are you?" }]);
  assert.equal(toSRT(found), "1\n00:00:00,000 --> 00:00:01,000\nGood morning.\n\n2\n00:00:01,500 --> 00:00:02,250\nHow are you?\n");
  assert.ok(toVTT([{ start: 3661.5, end: 3662, text: "a < b" }]).startsWith("WEBVTT\n\n01:01:01.500 --> 01:01:02.000\na &lt; b\n"));
  const many = Array.from({ length: 60 }, (_, index) => word("word", index / 5, index / 5 + 0.2));
  for (const { start, end, text } of cues(many)) {
    assert.ok(text.split("\n").length <= 2 && text.split("\n").every((line) => line.length <= 42), text);
    assert.ok(end - start <= 7);
  }
  assert.equal(cues(many).flatMap(({ text }) => text.split(/\s/)).length, 60);
});

test("metrics are read, summed, and their quantiles told", () => {
  const before = parseMetrics('# HELP a b\nn{model="x"} 2\nn{model="y\\"z"} 3\nh_bucket{le="1"} 0\nh_bucket{le="2"} 0\nh_bucket{le="+Inf"} 0\n');
  const after = parseMetrics('h_bucket{le="1"} 2\nh_bucket{le="2"} 4\nh_bucket{le="+Inf"} 4\n');
  assert.equal(total(before, "n"), 5);
  assert.equal(total(before, "n", { model: "x" }), 2);
  assert.equal(total(before, "absent"), null);
  assert.equal(quantile(before, after, "h", 0.5), 1);
  assert.equal(quantile(before, after, "h", 0.75), 1.5);
  assert.equal(quantile(after, after, "h", 0.5), null);
});

const sine = (hertz, rate, seconds) => Float32Array.from({ length: rate * seconds }, (_, n) => Math.sin((2 * Math.PI * hertz * n) / rate));

function resampled(samples, size, from = 44_100, to = 24_000) {
  const made = new Resampler(from, to);
  const parts = [];
  for (let start = 0; start < samples.length; start += size) parts.push(...made.push(samples.slice(start, start + size)));
  return [...parts, ...made.flush()];
}

test("resampling keeps tones, removes what would fold, and does not depend on the cut", () => {
  const tone = sine(1000, 44_100, 0.5);
  const once = resampled(tone, tone.length);
  const expected = sine(1000, 24_000, 0.5);
  assert.ok(Math.abs(once.length - expected.length) < 40, String(once.length));
  let worst = 0;
  for (let n = 200; n < 11_000; n++) worst = Math.max(worst, Math.abs(once[n] - expected[n]));
  assert.ok(worst < 0.01, `${worst} of full scale`);
  const inPieces = resampled(tone, 128);
  assert.equal(inPieces.length, once.length);
  assert.ok(inPieces.every((sample, n) => Math.abs(sample - once[n]) < 1e-4));
  const folded = resampled(sine(16_000, 44_100, 0.5), 128).slice(200, -200);
  assert.ok(Math.max(...folded.map(Math.abs)) < 0.03);
});

test("code says what was chosen, and nothing that was not", () => {
  const live = liveCode("http://h:1/", true, { model: "m", language: "de", delay: "", turns: "none", recording: "opus" });
  assert.match(live.python, /client\.realtime\("m", language="de", turn_detection=None, sample_rate=audio\.rate\)/);
  assert.match(live.javascript, /recording: "opus"/);
  assert.doesNotMatch(live.python, /delay/);
  const files = filesCode("http://h:1/", false, { file: "it's.wav", model: "m", language: "", keywords: ["Wien"], task: "transcribe" });
  assert.match(files.curl, /'file=@it'\\''s\.wav'/);
  assert.match(files.curl, /-F keywords=Wien/);
  const part = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" }, file: { name: "a.png", kind: "image", type: "image/png" } };
  const chat = chatCode("http://h:1/", false, { model: "m", messages: [{ role: "user", content: [part, { type: "text", text: "Who's there?" }] }], options: { seed: 1 }, live: false });
  assert.match(chat.python, /images=\["a\.png"\]/);
  assert.doesNotMatch(chat.curl, /AAAA/);
});
