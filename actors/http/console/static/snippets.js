// What a view did, as lines of curl, Python (the SDK and the openai package) and JavaScript. Pure: texts of options.

const json = (value) => JSON.stringify(value);
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const root = (base) => base.replace(/\/$/, "");

function python(value, indent = 0) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return json(value);
  const pad = " ".repeat(indent + 4);
  const parts = Array.isArray(value)
    ? value.map((each) => `${pad}${python(each, indent + 4)},\n`)
    : Object.entries(value).map(([name, each]) => `${pad}${json(name)}: ${python(each, indent + 4)},\n`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const line = Array.isArray(value)
    ? `[${value.map((each) => python(each)).join(", ")}]`
    : `{${Object.entries(value).map(([name, each]) => `${json(name)}: ${python(each)}`).join(", ")}}`;
  return line.length + indent < 72 && !line.includes("\n") ? line : `${open}\n${parts.join("")}${" ".repeat(indent)}${close}`;
}

const keyOf = (hasKey) => (hasKey ? { shell: ' -H "Authorization: Bearer $KEY"', python: ", api_key=KEY", js: ", apiKey: KEY" } : { shell: "", python: "", js: "" });
const given = (options) => Object.fromEntries(Object.entries(options).filter(([, value]) => value !== "" && value !== null && value !== undefined));
const keywords = (options) => Object.entries(options).map(([name, value]) => `${name}=${python(value)}`);

/** Of the Live view: {model, language, delay, turns, recording}. */
export function liveCode(base, hasKey, { model, language, delay, turns, recording }) {
  const key = keyOf(hasKey);
  const url = root(base);
  const detection = turns === "semantic_vad" ? { type: "semantic_vad" } : turns === "none" ? null : undefined;
  const transcription = given({ model, language, delay });
  const options = given({ language, delay });
  const python_options = [json(model), ...keywords(options), ...(detection === undefined ? [] : [`turn_detection=${python(detection)}`])];
  const session = { type: "transcription", audio: { input: { format: { type: "audio/pcm", rate: 24000 }, transcription, ...(detection !== undefined && { turn_detection: detection }) } } };
  const js_options = [`model: ${json(model)}`, ...Object.entries(options).map(([name, value]) => `${name}: ${json(value)}`), ...(detection === undefined ? [] : [`turnDetection: ${detection ? '{ type: "semantic_vad" }' : "null"}`])];
  return {
    curl: `# Live speech needs a WebSocket: the command line has one, and a microphone.
sensorium listen --base-url ${url} --model ${model}${language ? ` --language ${language}` : ""}${delay ? ` --delay ${delay}` : ""}

# A short-lived key for a page of yours, that opens such sessions and nothing else:
curl ${url}/v1/realtime/client_secrets${key.shell} -H "Content-Type: application/json" \\
  -d ${quoted(json({ session: { type: "transcription", audio: { input: { transcription } } } }))}
`,
    python: `from sensorium import Client
from sensorium.client import Completed, Delta
from sensorium.client.audio import read_wav

audio = read_wav("speech.wav")
with Client("${url}"${key.python}) as client:
    with client.realtime(${[...python_options, "sample_rate=audio.rate"].join(", ")}) as session:
        for event in session.transcribe(audio.chunks(), speed=1.0):
            match event:
                case Delta(delta=text):
                    print(text, end="", flush=True)
                case Completed(transcript=text):
                    print("\\n→", text)
`,
    openai: `import base64, wave
from openai import OpenAI

client = OpenAI(base_url="${url}/v1", api_key=${hasKey ? "KEY" : '"none"'})
with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
    connection.session.update(session=${python(session, 4)})
    with wave.open("speech-24kHz.wav") as speech:
        audio = speech.readframes(speech.getnframes())
    for start in range(0, len(audio), 48_000):
        connection.input_audio_buffer.append(audio=base64.b64encode(audio[start : start + 48_000]).decode())
    connection.input_audio_buffer.commit()
    for event in connection:
        if event.type == "conversation.item.input_audio_transcription.completed":
            print(event.transcript)
            break
`,
    javascript: `import { Client, Microphone } from "${url}/console/sdk/sensorium.js";

const client = new Client({ baseURL: "${url}"${key.js} });
const microphone = await Microphone.open({ recording: ${json(recording)} });
const session = await client.realtime({
  ${js_options.join(",\n  ")},
  audioFormat: microphone.audioFormat,
});
session.on("conversation.item.input_audio_transcription.delta", ({ delta }) => console.log(delta));
session.on("conversation.item.input_audio_transcription.completed", ({ transcript }) => console.log("→", transcript));
microphone.start(session);

// later
await microphone.stop();
await session.finish();
session.close();
`,
  };
}

/** Of the Files view: {file, model, language, keywords, task}. */
export function filesCode(base, hasKey, { file, model, language, keywords: expected, task }) {
  const key = keyOf(hasKey);
  const url = root(base);
  const fields = given({ model, language });
  const words = expected.length ? { keywords: expected } : {};
  const isTranslation = task === "translate";
  const path = isTranslation ? "translations" : "transcriptions";
  const method = isTranslation ? "translate" : "transcribe";
  const form = [...Object.entries(fields), ...expected.map((each) => ["keywords", each])];
  const shell = form.map(([name, value]) => ` \\\n  -F ${/^[\w./-]+$/.test(value) ? `${name}=${value}` : quoted(`${name}=${value}`)}`);
  return {
    curl: `curl ${url}/v1/audio/${path}${key.shell} \\
  -F ${quoted(`file=@${file}`)}${shell.join("")} \\
  -F response_format=srt
`,
    python: `from sensorium import Client

with Client("${url}"${key.python}) as client:
    transcript = client.${method}(
        ${[json(file), ...keywords(isTranslation ? { model } : { ...fields, ...words, response_format: "verbose_json", timestamp_granularities: ["word"] })].join(",\n        ")},
    )
    print(transcript.text)${isTranslation ? "" : `
    for word in transcript.words:
        print(f"{word.start:7.2f} {word.word}")`}
`,
    openai: `from openai import OpenAI

client = OpenAI(base_url="${url}/v1", api_key=${hasKey ? "KEY" : '"none"'})
with open(${json(file)}, "rb") as file:
    transcript = client.audio.${path}.create(
        ${["file=file", ...keywords(isTranslation ? { model } : fields), 'response_format="srt"', ...(expected.length ? [`extra_body=${python(words)}`] : [])].join(",\n        ")},
    )
print(transcript)
`,
    javascript: `import { Client, cues, toSRT } from "${url}/console/sdk/sensorium.js";

const client = new Client({ baseURL: "${url}"${key.js} });
const [file] = document.querySelector("input[type=file]").files;
const transcript = await client.transcribe(file, {
  ${[...Object.entries({ ...fields, ...words, ...(isTranslation && { translate: true }) }).map(([name, value]) => `${name}: ${json(value)}`), 'response_format: "verbose_json"', 'timestamp_granularities: ["word"]', "onUpload: (sent, total) => console.log(sent / total)"].join(",\n  ")},
});
console.log(toSRT(cues(transcript.words)));
`,
  };
}

/** Of the Chat view: {model, messages, options}; media of messages as {name, kind}. */
export function chatCode(base, hasKey, { model, messages, options, live }) {
  const key = keyOf(hasKey);
  const url = root(base);
  const shown = messages.map(shortened);
  const last = messages.findLast((message) => message.role === "user") ?? { content: "Hello" };
  const text = textOf(last) || "What is this?";
  const media = mediaOf(last);
  const body = { model, messages: shown, ...options };
  const extra = keywords(options).join(", ");
  if (live) return liveChatCode(url, key, hasKey, { model, text, options });
  const kinds = { image: "images", video: "videos", audio: "audio" };
  const lists = Object.entries(kinds).map(([kind, name]) => [name, media.filter((each) => each.kind === kind).map((each) => each.name)]);
  const attached = lists.filter(([, names]) => names.length).map(([name, names]) => `${name}=${python(names)}`);
  return {
    curl: `curl ${url}/v1/chat/completions${key.shell} -H "Content-Type: application/json" \\
  -d ${quoted(json({ ...body, stream: true }))}
`,
    python: `from sensorium import Client

with Client("${url}"${key.python}) as client:
    answer = client.chat(
        ${[json(text), `model=${json(model)}`, ...attached, ...keywords(options)].join(",\n        ")},
    )
    print(answer.text)
`,
    openai: `from openai import OpenAI

client = OpenAI(base_url="${url}/v1", api_key=${hasKey ? "KEY" : '"none"'})
for chunk in client.chat.completions.create(
    model=${json(model)},
    stream=True,${extra ? `\n    ${extra},` : ""}
    messages=${python(shown, 4)},
):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
`,
    javascript: `import { Client } from "${url}/console/sdk/sensorium.js";

const client = new Client({ baseURL: "${url}"${key.js} });
const messages = ${JSON.stringify(shown, null, 2)};
let answer = "";
for await (const piece of client.chatStream(messages, ${json({ model, ...options })})) {
  answer += piece.text;
}
console.log(answer);
`,
  };
}

function liveChatCode(url, key, hasKey, { model, text, options }) {
  return {
    curl: `# Live pictures need a WebSocket: the command line has one, and a camera.
sensorium watch camera ${quoted(text)} --base-url ${url} --model ${model} --every 5
`,
    python: `from sensorium import Client

with Client("${url}"${key.python}) as client:
    with client.realtime(${[json(model), 'type="realtime"', ...keywords(given({ temperature: options.temperature }))].join(", ")}) as session:
        session.send_frame("frame.jpg")  # or bytes, a PIL image, an array
        for piece in session.ask(${json(text)}):
            print(piece, end="", flush=True)
`,
    openai: `import base64
from openai import OpenAI

client = OpenAI(base_url="${url}/v1", api_key=${hasKey ? "KEY" : '"none"'})
picture = base64.b64encode(open("frame.jpg", "rb").read()).decode()
with client.realtime.connect(model=${json(model)}) as connection:
    connection.conversation.item.create(item={"type": "message", "role": "user", "content": [
        {"type": "input_image", "image_url": f"data:image/jpeg;base64,{picture}"},
        {"type": "input_text", "text": ${json(text)}},
    ]})
    connection.response.create()
    for event in connection:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        elif event.type == "response.done":
            break
`,
    javascript: `import { Client, FrameSource } from "${url}/console/sdk/sensorium.js";

const client = new Client({ baseURL: "${url}"${key.js} });
const camera = await FrameSource.open("camera");
const session = await client.realtime({ type: "realtime", model: ${json(model)} });
await camera.start(session);
for await (const piece of session.ask(${json(text)})) console.log(piece);
`,
  };
}

/** Of the Server view. */
export function serverCode(base, hasKey) {
  const key = keyOf(hasKey);
  const url = root(base);
  return {
    curl: `curl ${url}/v1/models${key.shell}\ncurl ${url}/metrics${key.shell}\ncurl ${url}/health\n`,
    python: `from sensorium import Client

with Client("${url}"${key.python}) as client:
    for model in client.models():
        print(model)
`,
    openai: `from openai import OpenAI

client = OpenAI(base_url="${url}/v1", api_key=${hasKey ? "KEY" : '"none"'})
for model in client.models.list():
    print(model.id, model.abilities)
`,
    javascript: `import { Client, total } from "${url}/console/sdk/sensorium.js";

const client = new Client({ baseURL: "${url}"${key.js} });
console.log(await client.models());
console.log(total(await client.metrics(), "sensorium_sessions_active"));
`,
  };
}

function textOf({ content }) {
  return typeof content === "string" ? content : (content ?? []).filter((part) => part.type === "text").map((part) => part.text).join("\n");
}

function mediaOf({ content }) {
  return typeof content === "string" ? [] : (content ?? []).filter((part) => part.file).map((part) => part.file);
}

/** A message with its media cut short, as it is shown. */
function shortened({ role, content }) {
  if (typeof content === "string") return { role, content };
  const parts = content.map((part) => {
    if (part.type === "image_url") return { type: "image_url", image_url: { url: `data:${part.file.type};base64,…` } };
    if (part.type === "video_url") return { type: "video_url", video_url: { url: `data:${part.file.type};base64,…` } };
    if (part.type === "input_audio") return { type: "input_audio", input_audio: { data: "…", format: part.input_audio.format } };
    return { type: part.type, text: part.text };
  });
  return { role, content: parts };
}
