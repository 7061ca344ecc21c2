// What a final transcript has corrected of the partials that were shown.

import assert from "node:assert/strict";
import { test } from "node:test";

import { compared } from "../../../actors/http/console/static/compared.js";

const corrected = (partial, final) => compared(partial, final).filter((piece) => piece.before !== undefined);
const whole = (partial, final) => compared(partial, final).map((piece) => piece.text).join("").trim();

test("text that only grew has no corrections", () => {
  for (const partial of ["", "Good", "Good morning Alice", "Good morning Alice, how are you?"]) {
    assert.deepEqual(corrected(partial, "Good morning Alice, how are you?"), [], partial);
  }
});

test("words that differ are marked with what stood there", () => {
  assert.deepEqual(corrected("go waiting is on", "call waiting is off"), [
    { text: "call ", before: "go" },
    { text: "off ", before: "on" },
  ]);
  assert.deepEqual(corrected("I see a red", "I see the large red circle"), [{ text: "the large ", before: "a" }]);
});

test("the pieces are the final text, whatever was shown before", () => {
  const words = ["a", "b", "c", "a", "d"];
  const pick = (number) => words.filter((_, index) => (number >> index) & 1).join(" ");
  for (let old = 0; old < 32; old++) {
    for (let now = 1; now < 32; now++) assert.equal(whole(pick(old), pick(now)), pick(now), `${pick(old)} → ${pick(now)}`);
  }
});
