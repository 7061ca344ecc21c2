// Runs in the audio thread: samples of a microphone as PCM16 of one channel, in chunks. Used by microphone.js.

import { Resampler } from "./resampler.js";

class PCMWriter extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate, chunkMs } }) {
    super();
    this.size = Math.round((rate * chunkMs) / 1000);
    this.chunk = new Int16Array(this.size);
    this.length = 0;
    this.running = true;
    this.resampler = rate === sampleRate ? null : new Resampler(sampleRate, rate);
    this.port.onmessage = () => this.stop();
  }

  process([channels]) {
    if (channels.length) {
      const mono = mixed(channels);
      this.write(this.resampler ? this.resampler.push(mono) : mono);
    }
    return this.running;
  }

  stop() {
    if (this.resampler) this.write(this.resampler.flush());
    if (this.length) this.post();
    this.running = false;
    this.port.postMessage(null);
  }

  write(samples) {
    for (const sample of samples) {
      this.chunk[this.length++] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
      if (this.length === this.size) this.post();
    }
  }

  post() {
    const chunk = this.length === this.size ? this.chunk : this.chunk.slice(0, this.length);
    this.port.postMessage(chunk.buffer, [chunk.buffer]);
    this.chunk = new Int16Array(this.size);
    this.length = 0;
  }
}

function mixed(channels) {
  if (channels.length === 1) return channels[0];
  return channels[0].map((_, index) => channels.reduce((sum, each) => sum + each[index], 0) / channels.length);
}

registerProcessor("sensorium-pcm", PCMWriter);
