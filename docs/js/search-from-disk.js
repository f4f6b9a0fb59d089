// A page that is opened from disk may not start a worker, so there the search runs in a hidden frame that speaks as one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script>
        self.postMessage = (words) => parent.postMessage(words, "*");
        self.importScripts = (...names) => names.reduce((before, name) => before.then(() => new Promise((done) => {
          const script = document.createElement("script");
          script.src = name;
          script.onload = done;
          document.head.append(script);
        })), Promise.resolve());
      </script><script src="${new URL(address, location.href)}"></script>`;
      this.postMessage = (words) => waiting.push(words);
      frame.addEventListener("load", () => {
        this.postMessage = (words) => window.postMessage.call(frame.contentWindow, words, "*"); // the frame's own answers us
        waiting.forEach((words) => this.postMessage(words));
      });
      window.addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow) return;
        const heard = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(heard);
        if (this.onmessage) this.onmessage(heard);
      });
      document.documentElement.append(frame);
    }
  };
}
