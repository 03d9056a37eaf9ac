// The theme's search, changed in two things: its index comes when somebody searches, not with every page; and it works
// without a server, too, where browsers allow neither workers nor reading of files beside the page.
"use strict";

(() => {
  const INDEX = /search\/search_index\.json$/;
  const wanted = new Promise((resolve) => {
    const look = (event) => {
      const typed = event.type === "keydown" && ["/", "f", "s"].includes(event.key);
      if (typed || event.target?.matches?.("[data-md-component=search-query]")) resolve();
    };
    for (const type of ["focusin", "keydown"]) addEventListener(type, look, true);
    if (new URLSearchParams(location.search).has("q")) resolve();
  });

  const { open, send } = XMLHttpRequest.prototype;
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    this.isIndex = INDEX.test(url);
    return open.call(this, method, url, ...rest);
  };
  XMLHttpRequest.prototype.send = function (...data) {
    if (this.isIndex) wanted.then(() => send.apply(this, data));
    else send.apply(this, data);
  };

  if (location.protocol !== "file:") return;

  // A worker that is a hidden frame of the page.
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      this.inside = new Promise((resolve) => {
        addEventListener("DOMContentLoaded", () => {
          document.body.append(frame);
          const inner = frame.contentWindow;
          inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = frame.contentDocument.createElement("script");
          script.src = url;
          script.onload = () => resolve(inner);
          frame.contentDocument.head.append(script);
        });
      });
    }

    postMessage(data) {
      this.inside.then((inner) => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
    }

    terminate() {}
  };
})();
