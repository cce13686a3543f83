// Browsers start no worker from a file. So in a site that is opened as a file, a hidden frame takes its place: it runs
// the same script, which finds in it what a worker has. The theme looks for the name `IFrameWorker`.
class IFrameWorker extends EventTarget {
  constructor(script) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const inside = frame.contentWindow;
    inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
    this.started = new Promise((started, failed) => {
      const element = inside.document.createElement("script");
      Object.assign(element, { onload: () => started(inside), onerror: failed, src: script });
      inside.document.head.append(element);
    });
  }

  async postMessage(data) {
    const inside = await this.started;
    inside.dispatchEvent(new inside.MessageEvent("message", { data }));
  }
}

if (location.protocol === "file:") Object.assign(window, { IFrameWorker, Worker: IFrameWorker });
