// Types of the module. Field names of events and bodies are the server's: docs/sessions.md, docs/dialogues.md,
// docs/files.md, docs/chat.md.

export interface Model {
  id: string;
  /** "transcribe", "translate", "complete", "chat" */
  abilities: string[];
  /** "text", "image", "video", "audio" */
  input_modalities: string[];
  languages?: string[];
  max_model_len?: number;
  root?: string;
  created: number;
}

export interface Word {
  word: string;
  start: number;
  end: number;
  probability?: number;
}

export interface Segment {
  id: number | string;
  start: number;
  end: number;
  text: string;
  words?: Word[];
}

export interface Transcript {
  text: string;
  language?: string;
  languages?: { code: string }[];
  duration?: number;
  segments?: Segment[];
  words?: Word[];
}

export type TranscriptEvent =
  | { type: "transcript.text.delta"; delta: string }
  | ({ type: "transcript.text.segment" } & Segment)
  | ({ type: "transcript.text.done" } & Transcript);

/** Fields of `/v1/audio/transcriptions`; others of docs/files.md may be given, too. */
export interface FileOptions {
  model?: string;
  language?: string;
  prompt?: string;
  keywords?: string[];
  response_format?: "json" | "text" | "verbose_json" | "srt" | "vtt" | "tsv";
  timestamp_granularities?: ("word" | "segment")[];
  /** Write English, whatever is spoken. */
  translate?: boolean;
  signal?: AbortSignal;
  /** Sent and total bytes. Where the browser cannot tell (Node), once at the end. */
  onUpload?: (sent: number, total: number) => void;
  [field: string]: unknown;
}

export type ContentPart =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string } }
  | { type: "video_url"; video_url: { url: string } }
  | { type: "input_audio"; input_audio: { data: string; format: string } };

export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: string | ContentPart[] | null;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
}

export interface ToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

/** Fields of `/v1/chat/completions` beside its messages. */
export interface ChatOptions {
  model?: string;
  temperature?: number;
  top_p?: number;
  max_tokens?: number;
  seed?: number;
  tools?: object[];
  signal?: AbortSignal;
  [field: string]: unknown;
}

export interface ChatPiece {
  text: string;
  reasoning: string;
  /** All calls so far, as they grow. */
  toolCalls: ToolCall[];
  finishReason: string | null;
  usage: { prompt_tokens: number; completion_tokens: number; total_tokens: number } | null;
}

export interface ChatAnswer {
  id: string;
  model: string;
  choices: { index: number; message: Message & { reasoning_content?: string }; finish_reason: string | null }[];
  usage: { prompt_tokens: number; completion_tokens: number; total_tokens: number };
}

export type AudioFormat =
  | { type: "audio/pcm"; rate?: 8000 | 16000 | 24000 | 48000; channels?: number }
  | { type: string; channels?: number };

export type TurnDetection =
  | { type: "server_vad"; threshold?: number; prefix_padding_ms?: number; silence_duration_ms?: number }
  | { type: "semantic_vad"; eagerness?: "low" | "medium" | "high" | "auto" }
  | null;

interface LiveOptions {
  model?: string | null;
  audioFormat?: AudioFormat;
  /** null leaves the turns to `commit` and `flush`. */
  turnDetection?: TurnDetection;
  multichannel?: boolean;
  /** false ends the session with its connection. */
  resume?: boolean;
  language?: string | null;
  languages?: string[];
  prompt?: string;
  keywords?: string[];
  delay?: "minimal" | "low" | "medium" | "high" | "xhigh" | null;
  timestampGranularities?: ("word" | "segment")[];
  numerals?: "digits" | "words";
  utteranceEndMs?: number;
  leftContextMs?: number;
  task?: "transcribe" | "translate";
}

export interface TranscriptionOptions extends LiveOptions {
  type?: "transcription";
}

export interface AnsweringOptions extends LiveOptions {
  type: "realtime";
  /** The model that transcribes spoken turns. */
  transcriptionModel?: string;
  instructions?: string | null;
  maxOutputTokens?: number | "inf";
  temperature?: number;
  topP?: number;
  seed?: number;
  tools?: object[];
  toolChoice?: unknown;
  reasoning?: { effort: string };
  truncation?: unknown;
  video?: { retention_s?: number; retention_tokens?: number; min_change?: number };
}

interface OfItem {
  item_id: string;
  channel?: number;
}

/** Events by their type. Those that are not listed have the fields of docs/sessions.md and docs/dialogues.md. */
export interface SessionEvents {
  "input_audio_buffer.speech_started": OfItem & { audio_start_ms: number };
  "input_audio_buffer.speech_stopped": OfItem & { audio_end_ms: number };
  "input_audio_buffer.committed": OfItem & { audio_start_ms?: number; audio_end_ms?: number };
  "input_audio_buffer.backpressure": { buffered_ms: number; limit_ms: number };
  "input_audio_buffer.utterance_ended": OfItem & { last_word_end_ms: number };
  "conversation.item.input_audio_transcription.delta": OfItem & { delta: string };
  "conversation.item.input_audio_transcription.completed": OfItem & {
    transcript: string;
    languages?: { code: string }[] | null;
    /** Seconds from the item's start. */
    words?: Word[];
  };
  "conversation.item.input_audio_transcription.failed": OfItem & { error: ErrorDetail };
  "response.output_text.delta": { response_id: string; item_id: string; delta: string };
  "session.expiring": { reason: string; seconds_left: number };
  error: { error: ErrorDetail };
  /** The connection broke; the session waits `grace_s` seconds for another one. */
  "connection.lost": { code: number; grace_s: number };
  "connection.resumed": { received_events: number };
  /** The last event. `error` is null where `close` was called. */
  "session.closed": { error: SDKError | null };
}

export interface ErrorDetail {
  type?: string | null;
  code: string | null;
  message: string | null;
  param?: string | null;
  event_id?: string | null;
}

export type SessionEvent =
  | { [Type in keyof SessionEvents]: { type: Type } & SessionEvents[Type] }[keyof SessionEvents]
  | { type: string; [field: string]: any };

export interface SessionView {
  id: string;
  limits: { max_backlog_ms: number; max_append_bytes: number; max_fps?: number; resume_grace_s?: number; [name: string]: unknown };
  capabilities: string[];
  [field: string]: any;
}

export class Session {
  private constructor();
  readonly state: "connecting" | "open" | "lost" | "closed";
  readonly numUnfinished: number;
  readonly created: SessionView | null;
  readonly settings: SessionView | null;
  readonly error?: SDKError | null;
  on<Type extends keyof SessionEvents>(type: Type, listener: (event: { type: Type } & SessionEvents[Type]) => void): () => void;
  on(type: string, listener: (event: any) => void): () => void;
  [Symbol.asyncIterator](): AsyncGenerator<SessionEvent, void, void>;
  send(event: { type: string; [field: string]: unknown }): void;
  append(chunk: ArrayBuffer | ArrayBufferView): void;
  appendAll(
    chunks: ArrayBuffer | ArrayBufferView | Iterable<ArrayBuffer | ArrayBufferView> | AsyncIterable<ArrayBuffer | ArrayBufferView>,
    options?: { speed?: number | null },
  ): Promise<void>;
  drained(): Promise<void>;
  commit(): void;
  flush(): void;
  clear(): void;
  finish(options?: { timeoutMs?: number }): Promise<void>;
  close(): void;
  ask(content: string | object[], response?: Record<string, unknown>): Answer;
  sendFrame(picture: ArrayBuffer | ArrayBufferView, timestampMs?: number): boolean;
}

export class Answer {
  private constructor();
  readonly text: string;
  readonly isDone: boolean;
  readonly done: Promise<{ text: string; status: string; usage: any; output: any[] }>;
  cancel(): void;
  [Symbol.asyncIterator](): AsyncGenerator<string, void, void>;
}

export class Client {
  constructor(options?: {
    /** The page's own origin if not given. `/v1` at its end is left out. */
    baseURL?: string;
    /** For trusted places. A browser asks for an ephemeral key with it before each session. */
    apiKey?: string | null;
    /** Opens live sessions and nothing else. */
    ephemeralKey?: string | (() => string | Promise<string>) | null;
    fetch?: typeof globalThis.fetch;
    WebSocket?: any;
  });
  readonly baseURL: string;
  apiKey: string | null;
  models(): Promise<Model[]>;
  health(): Promise<{ status: string }>;
  metrics(): Promise<Metrics>;
  transcribe(file: Blob, options: FileOptions & { response_format: "text" | "srt" | "vtt" | "tsv" }): Promise<string>;
  transcribe(file: Blob, options?: FileOptions): Promise<Transcript>;
  transcribeStream(file: Blob, options?: FileOptions): AsyncGenerator<TranscriptEvent, void, void>;
  chat(messages: Message[], options?: ChatOptions): Promise<ChatAnswer>;
  chatStream(messages: Message[], options?: ChatOptions): AsyncGenerator<ChatPiece, void, void>;
  clientSecret(session: object, options?: { seconds?: number; singleUse?: boolean }): Promise<{ value: string; expires_at: number }>;
  realtime(options?: TranscriptionOptions | AnsweringOptions): Promise<Session>;
}

export class Microphone {
  private constructor();
  static open(options?: {
    recording?: "pcm" | "opus";
    rate?: 8000 | 16000 | 24000 | 48000;
    /** Another source than the microphone. */
    stream?: MediaStream;
    deviceId?: string;
    echoCancellation?: boolean;
    noiseSuppression?: boolean;
    autoGainControl?: boolean;
  }): Promise<Microphone>;
  readonly audioFormat: AudioFormat;
  readonly label: string;
  readonly rate: number;
  readonly beganAt: number;
  onSamples(listener: (samples: Int16Array) => void): () => void;
  start(target: { append(chunk: ArrayBuffer): void; state?: string }): void;
  stop(): Promise<void>;
}

export class FrameSource {
  private constructor();
  static open(kind?: "camera" | "screen", options?: { deviceId?: string; maxSide?: number }): Promise<FrameSource>;
  readonly video: HTMLVideoElement;
  onEnd(listener: () => void): void;
  snapshot(): Promise<Blob>;
  start(session: Session): Promise<void>;
  stop(): void;
}

export interface Cue {
  start: number;
  end: number;
  text: string;
}

export function cues(timed: Word[] | Segment[]): Cue[];
export function toSRT(found: Cue[]): string;
export function toVTT(found: Cue[]): string;

export type Metrics = Map<string, { labels: Record<string, string>; value: number }[]>;
export function parseMetrics(text: string): Metrics;
export function total(metrics: Metrics, name: string, labels?: Record<string, string>): number | null;
export function quantile(before: Metrics | null, after: Metrics, name: string, share: number): number | null;

export class SDKError extends Error {}
export class SensoriumConnectionError extends SDKError {}
export class SensoriumTimeoutError extends SDKError {}
export class APIError extends SDKError {
  readonly status: number;
  readonly code: string | null;
  readonly param: string | null;
  readonly requestId: string | null;
  readonly retryAfter: number | null;
}
export class SessionClosedError extends SDKError {
  readonly code: number;
  readonly reason: string;
  readonly numUnfinished: number;
  readonly lastError: string | null;
  readonly notResumed: string | null;
}
