// Changes the sample rate of a stream, for browsers whose microphone does not run at the rate that is wanted.
//
// Windowed-sinc interpolation (J. O. Smith, "Digital Audio Resampling"): each output sample is a weighted sum of
// the input around its time, with a low-pass filter at the lower of the two Nyquist frequencies.

const ZERO_CROSSINGS = 16;
const HEADROOM = 0.95;

export class Resampler {
  #step;
  #cutoff;
  #half;
  #kept = new Float32Array(0);
  #time; // of the next output sample, in input samples from the first one that is kept

  constructor(from, to) {
    this.#step = from / to;
    this.#cutoff = HEADROOM * Math.min(1, to / from);
    this.#half = Math.ceil(ZERO_CROSSINGS / this.#cutoff);
    this.#kept = new Float32Array(this.#half); // silence before the first sample
    this.#time = this.#half;
  }

  /** The output samples that `input` completes. */
  push(input) {
    const samples = new Float32Array(this.#kept.length + input.length);
    samples.set(this.#kept);
    samples.set(input, this.#kept.length);
    const output = [];
    while (this.#time + this.#half < samples.length) {
      output.push(this.#at(samples, this.#time));
      this.#time += this.#step;
    }
    const dropped = Math.max(0, Math.min(samples.length, Math.floor(this.#time) - this.#half));
    this.#kept = samples.slice(dropped);
    this.#time -= dropped;
    return Float32Array.from(output);
  }

  /** What is left at the end of the stream. */
  flush() {
    return this.push(new Float32Array(this.#half + 1));
  }

  #at(samples, time) {
    const first = Math.max(0, Math.ceil(time - this.#half));
    const last = Math.min(samples.length - 1, Math.floor(time + this.#half));
    let sum = 0;
    for (let index = first; index <= last; index++) {
      const distance = index - time;
      const angle = Math.PI * distance * this.#cutoff;
      const sinc = angle === 0 ? 1 : Math.sin(angle) / angle;
      const window = 0.5 + 0.5 * Math.cos((Math.PI * distance) / (this.#half + 1));
      sum += samples[index] * sinc * window;
    }
    return sum * this.#cutoff;
  }
}
