// The frame of the page: views by address, whether the server answers, the key. Each view has a module.

import { at } from "./dom.js";
import { server } from "./state.js";
import * as live from "./live.js";
import * as files from "./files.js";
import * as chat from "./chat.js";
import * as overview from "./server.js";

const VIEWS = { live, files, chat, server: overview };
const STATUS = {
  loading: ["", "Connecting…"],
  ok: ["ok", "Connected"],
  key: ["down", "Needs a key"],
  down: ["down", "No answer. Trying again…"],
  busy: ["down", "Not ready. Trying again…"],
};

function show() {
  const name = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "live";
  for (const each of Object.keys(VIEWS)) {
    const isShown = each === name;
    at(`view-${each}`).hidden = !isShown;
    const link = document.querySelector(`nav a[href="#${each}"]`);
    if (isShown) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    VIEWS[each].shown?.(isShown);
  }
  document.title = `${at(`${name}-title`).textContent} · sensorium`;
}

function showServer() {
  const [className, text] = STATUS[server.status];
  at("status").className = `status ${className}`;
  at("status").textContent = text;
  at("key-open").hidden = server.status !== "key" && !server.hasKey;
  at("notice").hidden = server.status !== "down" && server.status !== "busy";
  at("notice").textContent =
    server.status === "busy"
      ? `${server.detail} This page tries again by itself.`
      : `The server at ${new URL(server.client.baseURL).host} does not answer. It may be starting again, or the network is gone. This page tries again by itself.`;
  if (server.status === "key" && !at("key-dialog").open) askForKey();
  if (server.status === "ok" && at("key-dialog").open) at("key-dialog").close();
  if (server.status === "ok") for (const view of Object.values(VIEWS)) view.serverChanged?.();
}

function askForKey() {
  at("key-text").textContent = server.hasKey
    ? `${server.detail} Check it for blanks and missing letters, or ask who runs this server: it accepts the keys of --api-key and --api-key-file.`
    : "This server requires a key: one of those that it was started with (--api-key or --api-key-file).";
  at("key-text").className = server.hasKey ? "wrong" : "";
  at("key-input").value = "";
  at("key-dialog").showModal();
}

at("key-open").addEventListener("click", askForKey);
at("key-cancel").addEventListener("click", () => at("key-dialog").close());
at("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  at("key-dialog").close();
  await server.setKey(at("key-input").value.trim());
});
server.addEventListener("change", showServer);
addEventListener("hashchange", show);
for (const view of Object.values(VIEWS)) view.begin();
show();
showServer();
server.refresh();
