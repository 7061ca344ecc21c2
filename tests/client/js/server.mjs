// The client against a real server, whose address is in SENSORIUM_URL, and one with the key "alice" at
// SENSORIUM_KEYED_URL: `tests/e2e/test_javascript.py` starts both and runs this.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import net from "node:net";
import { test } from "node:test";

import { APIError, Client, SensoriumConnectionError, SessionClosedError, total } from "../../../client/js/sensorium.js";

const URL_OF = process.env.SENSORIUM_URL;
const KEYED = process.env.SENSORIUM_KEYED_URL;
const DATA = new URL("../../../examples/data/", import.meta.url);
const DELTA = "conversation.item.input_audio_transcription.delta";
const COMPLETED = "conversation.item.input_audio_transcription.completed";
const ASR = "tiny-qwen3-asr";
const VL = "tiny-qwen3-vl";

const client = new Client({ baseURL: URL_OF });
const file = (name, type) => new File([readFileSync(new URL(name, DATA))], name, { type });
const lights = () => file("kitchen_lights.wav", "audio/wav");
/** Samples of a WAV file of 16 kHz, and as much silence that its last turn ends. */
const samples = (name) => Buffer.concat([readFileSync(new URL(name, DATA)).subarray(44), Buffer.alloc(32_000)]);
const picture = readFileSync(new URL("shapes.png", DATA));

/** A session of 16 kHz with what it heard: finals in order, and the deltas of each item. */
async function heard(from, options = {}) {
  const session = await from.realtime({ model: ASR, audioFormat: { type: "audio/pcm", rate: 16_000 }, ...options });
  const found = { session, finals: [], deltas: {}, types: [] };
  session.on("*", (event) => found.types.push(event.type));
  session.on(DELTA, ({ item_id: id, delta }) => (found.deltas[id] = (found.deltas[id] ?? "") + delta));
  session.on(COMPLETED, (event) => event.transcript && found.finals.push(event));
  return found;
}

/** A TCP proxy whose connections can be cut. */
async function proxyTo(address) {
  const { hostname, port } = new URL(address);
  const open = new Set();
  const proxy = { refuses: false, numAccepted: 0 };
  const listener = net.createServer((near) => {
    proxy.numAccepted += 1;
    if (proxy.refuses) return near.destroy();
    const far = net.connect(Number(port), hostname);
    for (const [from, to] of [[near, far], [far, near]]) {
      open.add(from);
      from.on("error", () => {});
      from.on("close", () => to.destroy());
      from.pipe(to);
    }
  });
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  proxy.url = `http://127.0.0.1:${listener.address().port}`;
  proxy.cut = () => {
    for (const each of open) each.resetAndDestroy();
    open.clear();
  };
  proxy.close = () => {
    listener.close();
    proxy.cut();
  };
  return proxy;
}

test("models, health and metrics", async () => {
  const models = await client.models();
  assert.deepEqual(models.map((model) => model.id).sort(), [ASR, VL]);
  assert.equal((await client.health()).status, "ok");
  assert.equal(total(await client.metrics(), "sensorium_sessions_active"), 0);
});

test("a file's transcript, as JSON, as subtitles and as it comes", async () => {
  const uploads = [];
  const options = { model: ASR, response_format: "verbose_json", timestamp_granularities: ["segment", "word"] };
  const whole = await client.transcribe(lights(), { ...options, onUpload: (sent, all) => uploads.push(sent / all) });
  assert.equal(whole.text, "Set the kitchen lights to ninety percent.");
  assert.equal(whole.words.length, 7);
  assert.equal(uploads.at(-1), 1);
  assert.match(await client.transcribe(lights(), { model: ASR, response_format: "srt" }), /^1\n00:00:0.,\d+ --> /);
  let text = "";
  const types = new Set();
  for await (const event of client.transcribeStream(lights(), { model: ASR, keywords: ["kitchen", "lights"] })) {
    types.add(event.type);
    text += event.delta ?? "";
  }
  assert.equal(text, whole.text);
  assert.deepEqual([...types], ["transcript.text.delta", "transcript.text.done"]);
});

test("errors are of the classes of the SDK", async () => {
  const unknown = client.transcribe(lights(), { model: "nobody" });
  await assert.rejects(unknown, (error) => error instanceof APIError && error.status === 404 && error.code === "model_not_found" && Boolean(error.requestId));
  const proxy = await proxyTo(URL_OF);
  proxy.close();
  const absent = new Client({ baseURL: proxy.url });
  await assert.rejects(absent.models(), SensoriumConnectionError);
  await assert.rejects(absent.realtime(), SensoriumConnectionError);
  await assert.rejects(client.realtime({ model: "nobody" }), (error) => error instanceof APIError && error.code === "model_not_found");
  await assert.rejects(client.realtime({ model: ASR, lanugage: "de" }), /lanugage is no option/);
  await assert.rejects(client.realtime({ model: ASR, language: "tlh" }), (error) => error instanceof APIError && error.status === 400);
});

test("a chat about a picture, whole and as it is written, and stopped", async () => {
  const url = `data:image/png;base64,${picture.toString("base64")}`;
  const messages = [{ role: "user", content: [{ type: "image_url", image_url: { url } }, { type: "text", text: "What is where?" }] }];
  const whole = await client.chat(messages, { model: VL });
  const { content } = whole.choices[0].message;
  assert.match(content, /red circle in the top left/);
  let text = "";
  let usage = null;
  for await (const piece of client.chatStream(messages, { model: VL })) {
    text += piece.text;
    usage = piece.usage ?? usage;
  }
  assert.equal(text, content);
  assert.equal(usage.total_tokens, whole.usage.total_tokens);
  const stop = new AbortController();
  const stopped = (async () => {
    for await (const piece of client.chatStream(messages, { model: VL, signal: stop.signal })) if (piece.text) stop.abort();
  })();
  await assert.rejects(stopped, (error) => error.name === "AbortError");
});

test("live speech has the finals of the file, and deltas before them", async () => {
  const found = await heard(client, { timestampGranularities: ["word"] });
  await found.session.appendAll(samples("kitchen_lights.wav"));
  await found.session.finish();
  assert.deepEqual(found.finals.map((event) => event.transcript), ["Set the kitchen lights to ninety percent."]);
  assert.equal(found.finals[0].words.length, 7);
  assert.equal(found.deltas[found.finals[0].item_id], found.finals[0].transcript);
  assert.equal(found.session.numUnfinished, 0);
  const rest = (async () => {
    for await (const event of found.session) if (event.type === "session.closed") return event;
  })();
  await new Promise((resolve) => setImmediate(resolve));
  found.session.close();
  assert.equal((await rest).error, null);
  assert.throws(() => found.session.commit(), /closed/);
});

test("a connection that is cut in mid-sentence is resumed without a word lost", async () => {
  const audio = samples("conversation.wav").subarray(0, 32_000 * 10);
  const uncut = await heard(client);
  await uncut.session.appendAll(audio);
  await uncut.session.finish();
  uncut.session.close();
  assert.ok(uncut.finals.length >= 2);

  const proxy = await proxyTo(URL_OF);
  try {
    const found = await heard(new Client({ baseURL: proxy.url }));
    const pieces = Array.from({ length: audio.length / 3200 }, (_, index) => audio.subarray(3200 * index, 3200 * (index + 1)));
    for (const [index, piece] of pieces.entries()) {
      found.session.append(piece);
      if (index === 15 || index === 60) proxy.cut();
      if (index % 5 === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await found.session.finish();
    assert.deepEqual(found.finals.map((event) => event.transcript), uncut.finals.map((event) => event.transcript));
    for (const final of found.finals) assert.equal(found.deltas[final.item_id], final.transcript);
    assert.deepEqual(found.types.filter((type) => type.startsWith("connection.")), ["connection.lost", "connection.resumed", "connection.lost", "connection.resumed"]);
    found.session.close();
  } finally {
    proxy.close();
  }
});

test("a server that stays away ends the session with the reason", async () => {
  const proxy = await proxyTo(URL_OF);
  try {
    const found = await heard(new Client({ baseURL: proxy.url }));
    const closed = new Promise((resolve) => found.session.on("session.closed", resolve));
    proxy.refuses = true;
    proxy.cut();
    const { error } = await closed;
    assert.ok(error instanceof SessionClosedError, String(error));
    assert.match(error.message, /could not be resumed: no server answered in time/);
    assert.ok(proxy.numAccepted > 2, `${proxy.numAccepted} connections`);
    assert.equal(found.session.state, "closed");
  } finally {
    proxy.close();
  }
});

test("a session without resume ends with its connection", async () => {
  const proxy = await proxyTo(URL_OF);
  try {
    const found = await heard(new Client({ baseURL: proxy.url }), { resume: false });
    const closed = new Promise((resolve) => found.session.on("session.closed", resolve));
    proxy.cut();
    assert.equal((await closed).error.code, 1006);
    assert.ok(!found.types.includes("connection.lost"));
  } finally {
    proxy.close();
  }
});

test("a session that answers is shown frames and asked about them", async () => {
  const session = await client.realtime({ type: "realtime", model: VL });
  assert.equal(session.sendFrame(picture, 0), true);
  assert.equal(session.sendFrame(picture, 1), false, "it takes two a second");
  const answer = session.ask("What is where?");
  let text = "";
  for await (const piece of answer) text += piece;
  assert.match(text, /red circle/);
  assert.equal((await answer.done).status, "completed");
  const refused = session.ask("What?", { temperature: 9 });
  await assert.rejects(refused.done, (error) => error instanceof APIError && /temperature/.test(error.message));
  session.close();
  const transcribing = await client.realtime({ model: ASR });
  assert.throws(() => transcribing.sendFrame(picture), /takes no frames/);
  transcribing.close();
});

test("a key is sent with requests, and never with a session", async () => {
  const protocols = [];
  class Noted extends WebSocket {
    constructor(url, names) {
      protocols.push(...names);
      super(url, names);
    }
  }
  const keyed = new Client({ baseURL: `${KEYED}/v1`, apiKey: "alice", WebSocket: Noted });
  assert.equal((await keyed.models()).length, 1);
  const session = await keyed.realtime();
  session.close();
  assert.equal(protocols.length, 2);
  assert.ok(protocols[1].startsWith("openai-insecure-api-key.ek_"), protocols[1]);

  const { value } = await keyed.clientSecret({ type: "transcription" }, { seconds: 60 });
  const page = new Client({ baseURL: KEYED, ephemeralKey: async () => value });
  (await page.realtime()).close();
  await assert.rejects(page.models(), (error) => error instanceof APIError && error.status === 401);
  const wrong = new Client({ baseURL: KEYED, apiKey: "bob" });
  await assert.rejects(wrong.realtime(), (error) => error instanceof APIError && error.status === 401 && error.message === "The API key is not accepted.");
});
